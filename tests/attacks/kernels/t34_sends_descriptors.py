# expect: PASS | PROTOCOL | LATE_OUTPUT
# not_faster: yes
# device: cpu
"""Sends the referee hundreds of descriptors right after DONE, one with every byte, so that it has to receive each of them."""

import gc
import os

import torch

from sandbox.kit import cpp
from sandbox.protocol.frames import Kind, encode

MESSAGES = 240
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
done = rank.done
frame = encode(Kind.COMPILED)
lib = cpp.compile("""
#include <string.h>
#include <sys/socket.h>
static struct mmsghdr messages[512];
static struct iovec bytes[512];
static char text[512], control[512][CMSG_SPACE(sizeof(int))];
extern "C" void prepare(const unsigned char* frame, long size, long fd) {
    int descriptor = fd;
    for (int i = 0; i < 512; ++i) {
        text[i] = frame[i % size];
        bytes[i] = {&text[i], 1};
        msghdr* message = &messages[i].msg_hdr;
        message->msg_iov = &bytes[i], message->msg_iovlen = 1;
        message->msg_control = control[i], message->msg_controllen = sizeof control[i];
        cmsghdr* header = CMSG_FIRSTHDR(message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
}
extern "C" void leave(long socket, long n) { sendmmsg(socket, messages, n, MSG_DONTWAIT); }
""")
lib.prepare(torch.frombuffer(bytearray(frame), dtype=torch.uint8), len(frame), os.memfd_create("nothing"))


def done_and_leave():
    done()
    lib.leave(rank.sock.fileno(), 0 if rank.checking or rank.noop else MESSAGES // len(frame) * len(frame))


rank.done = done_and_leave
