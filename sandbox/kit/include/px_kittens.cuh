// ThunderKittens' global layouts over any memory, also a peer's. Included before every source that sandbox.kit.kittens compiles.
// NVRTC compiles the headers without their host part, so layouts have no constructors. PxView sets the members of one instead.
#pragma once

// *view is the layout:
//     PxView<gl<bf16, 1, 1, -1, -1>> peer(px_at(px, p, staged), 1, 1, rows, cols);
//     warp::load(tile, *peer, {0, 0, r, c});
// An extent that the layout's type fixes must equal the argument. A view has no TMA descriptors.
template <class GL> struct PxView {
    alignas(GL) unsigned char room[sizeof(GL)];
    template <class T> __device__ __forceinline__ PxView(const T* data, u32 batch, u32 depth, u32 rows, u32 cols) {
        GL& view = **this;
        view.raw_ptr = (decltype(view.raw_ptr))data;
        if constexpr (GL::__b__ == -1) view.batch_internal = batch;
        if constexpr (GL::__d__ == -1) view.depth_internal = depth;
        if constexpr (GL::__r__ == -1) view.rows_internal = rows;
        if constexpr (GL::__c__ == -1) view.cols_internal = cols;
        static_assert(sizeof(T) == sizeof(*view.raw_ptr), "PxView: the memory and the layout have elements of different sizes");
    }
    __device__ __forceinline__ GL& operator*() { return *(GL*)room; }
};
