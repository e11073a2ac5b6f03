// For NVRTC: bool is built in.
