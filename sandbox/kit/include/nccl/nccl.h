// For NVRTC: what nccl_device.h names of the host's API.
#pragma once
typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef enum { ncclSuccess = 0 } ncclResult_t;
