// For NVRTC: the types of NCCL's host API that nccl_device.h uses.
#pragma once
typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef enum { ncclSuccess = 0 } ncclResult_t;
