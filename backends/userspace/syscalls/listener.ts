import { socketBackoff } from "../../../lib/os/backoff.ts";
import type { Timer } from "../../../lib/os/clock.ts";
import { isClientGone } from "../../../lib/os/socket_errors.ts";
import type { EventLoop, FdOwner } from "./event_loop.ts";
import { EPOLL, SystemError, WOULD_BLOCK } from "./libc.ts";

/** Connections that are accepted in one turn: a burst must not hold up what is open. */
const ACCEPTS_PER_TURN = 16;
const BACKLOG = 4096;

/** Takes what a socket accepts. */
export interface Accepting {
  /** A connection, whose client's address is `libc.address` during the call. */
  onAccepted(fd: number): void;
  /** None could be accepted; the next attempt follows after a pause. */
  onError(error: unknown): void;
}

/** A socket that accepts connections. */
export class Listener implements FdOwner {
  readonly fd: number;
  readonly #loop: EventLoop;
  #taker: Accepting | undefined;
  #backOff: ReturnType<typeof socketBackoff> | undefined;
  #pause: Timer | undefined;

  /** Takes over a bound socket, or closes it if it cannot listen. */
  constructor(loop: EventLoop, fd: number) {
    this.fd = fd;
    this.#loop = loop;
    loop.own(fd, this, 0);
    try {
      loop.libc.listen(fd, BACKLOG);
    } catch (error) {
      loop.close(fd, this);
      throw error;
    }
  }

  serve(taker: Accepting): void {
    this.#taker = taker;
    this.#loop.watch(this.fd, this, EPOLL.IN);
  }

  /** Connections that were taken stay. */
  close(): void {
    this.#taker = undefined;
    this.#pause?.cancel();
    this.#loop.close(this.fd, this);
  }

  onEvents(): void {
    for (let count = 0; count < ACCEPTS_PER_TURN && this.#taker; count++) {
      const fd = this.#loop.libc.accept(this.fd);
      if (fd >= 0) this.#taker.onAccepted(fd);
      else if (fd === WOULD_BLOCK) return;
      else {
        const error = new SystemError("accept", -fd);
        if (!isClientGone(error)) return this.#rest(error);
      }
    }
    this.#backOff = undefined;
  }

  /** The connection stays in the kernel's queue: asking again at once would be a busy loop. */
  #rest(error: SystemError): void {
    const { clock } = this.#loop;
    this.#loop.rewatch(this.fd, this, 0);
    const wait = (this.#backOff ??= socketBackoff()).next(clock.now());
    this.#pause = clock.setTimer(wait, () => this.#loop.rewatch(this.fd, this, EPOLL.IN));
    this.#taker?.onError(error);
  }
}
