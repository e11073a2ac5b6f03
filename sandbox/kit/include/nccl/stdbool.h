// For NVRTC: empty, because bool is built in.
