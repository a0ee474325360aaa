/**
 * Messages to systemd's service manager (sd_notify(3)): ready, status, watchdog, stopping.
 *
 * @module
 */

/**
 * Notifies the service manager; sends nothing if systemd did not start this process. Never throws:
 * kube-relay works without systemd too.
 */
export class ServiceNotifier implements Disposable {
  /**
   * Milliseconds between two watchdog messages, without which systemd kills the service: half of its time,
   * as sd_watchdog_enabled(3) recommends. `undefined` = no watchdog.
   */
  readonly watchdogMs: number | undefined;
  /** Empty without systemd. */
  readonly #target: string;
  #socket: Deno.DatagramConn | undefined;
  /** The message that is being sent. */
  #sending: Promise<void> = Promise.resolve();
  #failed = false;

  /**
   * `env` and `pid` are those of the process. `folder` is a writable one for the short-lived name of the
   * sending socket. `onError` is called once if messages cannot be sent.
   */
  constructor(
    { env, pid }: { env: (name: string) => string | undefined; readonly pid: number },
    private readonly folder: string,
    private readonly onError: (error: unknown) => void,
  ) {
    // A path, or an abstract name after `@`.
    const socket = env("NOTIFY_SOCKET") ?? "";
    this.#target = /^[/@]/.test(socket) ? socket.replace(/^@/, "\0") : "";
    const isMeant = Number(env("WATCHDOG_PID") || pid) === pid;
    const usec = Number(env("WATCHDOG_USEC"));
    const hasWatchdog = this.#target !== "" && isMeant && Number.isFinite(usec) && usec > 0;
    this.watchdogMs = hasWatchdog ? usec / 2000 : undefined;
  }

  [Symbol.dispose](): void {
    this.#socket?.close();
    this.#socket = undefined;
  }

  /** Sends a message, such as `READY=1`, after those before: Deno refuses two at once on a socket. */
  send(message: string): Promise<void> {
    if (this.#target === "") return Promise.resolve();
    return this.#sending = this.#sending.then(async () => {
      try {
        this.#socket ??= this.#open();
        const address: Deno.UnixAddr = { transport: "unixpacket", path: this.#target };
        await this.#socket.send(new TextEncoder().encode(message), address);
      } catch (error) {
        if (!this.#failed) this.onError(error);
        this.#failed = true;
      }
    });
  }

  /**
   * Deno cannot send from a socket without a name. No process uses the name, so it is removed at
   * once. Its folder is new: in a folder that other users may write to, or that a container with
   * the same process id shares, a predictable name may be taken.
   */
  #open(): Deno.DatagramConn {
    const folder = Deno.makeTempDirSync({ dir: this.folder, prefix: "notify-" });
    try {
      return Deno.listenDatagram({ transport: "unixpacket", path: `${folder}/s` });
    } finally {
      Deno.removeSync(folder, { recursive: true });
    }
  }
}
