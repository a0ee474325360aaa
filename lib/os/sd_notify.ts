/**
 * Messages to systemd's service manager (sd_notify(3)): ready, status, watchdog, stopping.
 *
 * @module
 */

/** systemd's variables in the environment. */
interface ServiceManagerEnvironment {
  /** `NOTIFY_SOCKET`: a path, or an abstract name after `@`. */
  readonly notifySocket?: string;
  /** `WATCHDOG_USEC`: systemd kills the service without a message for this time. */
  readonly watchdogUsec?: string;
  /** `WATCHDOG_PID`: the process that the watchdog is meant for. */
  readonly watchdogPid?: string;
}

interface ServiceNotifierOptions {
  readonly environment: ServiceManagerEnvironment;
  readonly pid: number;
  /** A writable folder for the short-lived name of the sending socket. */
  readonly folder: string;
  /** Called once if messages cannot be sent. */
  readonly onError: (error: unknown) => void;
}

/**
 * Returns half of systemd's watchdog time, as sd_watchdog_enabled(3) recommends; `undefined` = off.
 */
export function watchdogPeriodMs(
  { watchdogUsec, watchdogPid }: ServiceManagerEnvironment,
  pid: number,
): number | undefined {
  if (watchdogPid !== undefined && watchdogPid !== "" && Number(watchdogPid) !== pid) {
    return undefined;
  }
  const usec = Number(watchdogUsec);
  return Number.isFinite(usec) && usec > 0 ? usec / 2000 : undefined;
}

/**
 * Notifies the service manager; sends nothing if systemd did not start this process. Never throws:
 * kube-relay works without systemd too.
 */
export class ServiceNotifier implements Disposable {
  /** Milliseconds between two watchdog messages; `undefined` = no watchdog. */
  readonly watchdogMs: number | undefined;
  readonly #options: ServiceNotifierOptions;
  /** Empty without systemd. */
  readonly #target: string;
  #socket: Deno.DatagramConn | undefined;
  /** The message that is being sent. */
  #sending: Promise<void> = Promise.resolve();
  #failed = false;

  constructor(options: ServiceNotifierOptions) {
    const { environment, pid } = options;
    const { notifySocket = "" } = environment;
    this.#options = options;
    this.#target = /^[/@]/.test(notifySocket) ? notifySocket.replace(/^@/, "\0") : "";
    if (this.#target !== "") this.watchdogMs = watchdogPeriodMs(environment, pid);
  }

  /** Reports that the service is ready. */
  ready(): Promise<void> {
    return this.#send("READY=1");
  }

  /** One line for `systemctl status`. */
  status(text: string): Promise<void> {
    return this.#send(`STATUS=${text.replaceAll("\n", " ")}`);
  }

  /** Sends a watchdog message. */
  feedWatchdog(): Promise<void> {
    return this.#send("WATCHDOG=1");
  }

  /** Reports that the service is about to stop. */
  stopping(): Promise<void> {
    return this.#send("STOPPING=1");
  }

  [Symbol.dispose](): void {
    this.#socket?.close();
    this.#socket = undefined;
  }

  /** Sequential: Deno refuses a second send on a Unix socket while one is running. */
  #send(message: string): Promise<void> {
    if (this.#target === "") return Promise.resolve();
    this.#sending = this.#sending.then(() => this.#deliver(message));
    return this.#sending;
  }

  async #deliver(message: string): Promise<void> {
    try {
      this.#socket ??= this.#open();
      const address: Deno.UnixAddr = { transport: "unixpacket", path: this.#target };
      await this.#socket.send(new TextEncoder().encode(message), address);
    } catch (error) {
      if (!this.#failed) this.#options.onError(error);
      this.#failed = true;
    }
  }

  /**
   * Deno cannot send from a socket without a name. No process uses the name, so it is removed at
   * once. Its folder is new: in a folder that other users may write to, or that a container with
   * the same process id shares, a predictable name may be taken.
   */
  #open(): Deno.DatagramConn {
    const folder = Deno.makeTempDirSync({ dir: this.#options.folder, prefix: "notify-" });
    try {
      return Deno.listenDatagram({ transport: "unixpacket", path: `${folder}/s` });
    } finally {
      Deno.removeSync(folder, { recursive: true });
    }
  }
}
