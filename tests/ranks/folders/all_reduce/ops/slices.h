// The elements that a rank adds up: n of them in as many slices as there are ranks.
struct Slice {
    long first, last;
    template <class T> long bytes() const { return (last - first) * long(sizeof(T)); }
};

static Slice slice_of(int rank, int world, long n) {
    const long share = (n + world - 1) / world;
    const long first = share * rank < n ? share * rank : n;
    return {first, first + share < n ? first + share : n};
}
