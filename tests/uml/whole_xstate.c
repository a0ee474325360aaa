/*
 * Lets user-mode Linux 6.1 run on processors with AMX. It keeps the extended state of a process (FPU,
 * vector registers) in a buffer of 2,696 bytes; there the state has 11 KiB, and the host's kernel
 * refuses a shorter one with EFAULT, upon which the guest dies at boot. This library, which is
 * preloaded, completes the state: what the buffer does not hold is in its initial state.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PEEKTEXT = 1, PEEKUSER = 3, GETREGSET = 0x4204, SETREGSET = 0x4205, X86_XSTATE = 0x202 };

/* Of the header that follows the 512 bytes of the legacy area: which components are in use. */
enum { USED_COMPONENTS = 512 };
/* x87 to AVX-512 and PKRU without those after bit 7: they fit into the buffer of the guest. */
static const unsigned long long KEPT = 0xff;

static char whole[1 << 16];

static long set_xstate(long pid, const struct iovec *given) {
  struct iovec all = {whole, sizeof whole};
  if (syscall(SYS_ptrace, GETREGSET, pid, X86_XSTATE, &all) != 0 || all.iov_len <= given->iov_len)
    return syscall(SYS_ptrace, SETREGSET, pid, X86_XSTATE, given);
  unsigned long long used;
  memcpy(whole, given->iov_base, given->iov_len);
  memcpy(&used, whole + USED_COMPONENTS, sizeof used);
  used &= KEPT;
  memcpy(whole + USED_COMPONENTS, &used, sizeof used);
  return syscall(SYS_ptrace, SETREGSET, pid, X86_XSTATE, &all);
}

long ptrace(int request, ...) {
  va_list arguments;
  va_start(arguments, request);
  long pid = va_arg(arguments, int);
  void *address = va_arg(arguments, void *);
  void *data = va_arg(arguments, void *);
  va_end(arguments);
  if (request == SETREGSET && (long)address == X86_XSTATE) return set_xstate(pid, data);
  if (request < PEEKTEXT || request > PEEKUSER)
    return syscall(SYS_ptrace, request, pid, address, data);
  /* The system call writes what the function of the C library returns. */
  long word;
  long result = syscall(SYS_ptrace, request, pid, address, &word);
  if (result < 0) return result;
  errno = 0;
  return word;
}
