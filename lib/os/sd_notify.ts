/**
 * Messages to systemd's service manager (sd_notify(3)): ready, status, watchdog, stopping.
 *
 * @module
 */

/** What systemd says of itself in the environment. */
interface ServiceManagerEnvironment {
  /** `NOTIFY_SOCKET`: a path, or an abstract name after `@`. */
  readonly notifySocket?: string;
  /** `WATCHDOG_USEC`: the service is killed when it has not been heard of for so long. */
  readonly watchdogUsec?: string;
  /** `WATCHDOG_PID`: the process that the watchdog is meant for. */
  readonly watchdogPid?: string;
}

/** Tells the service manager how the service is doing. Never throws: an agent works without systemd too. */
export interface ServiceNotifier extends Disposable {
  /** Milliseconds between two signs of life that systemd expects; `undefined` = no watchdog. */
  readonly watchdogMs: number | undefined;
  /** The service works. */
  ready(): Promise<void>;
  /** One line for `systemctl status`. */
  status(text: string): Promise<void>;
  /** A sign of life. */
  feedWatchdog(): Promise<void>;
  /** The service is about to end. */
  stopping(): Promise<void>;
}

/** What a notifier is made with. */
interface ServiceNotifierOptions {
  readonly environment: ServiceManagerEnvironment;
  readonly pid: number;
  /** A folder that can be written to, for the moment in which the sending socket has a name. */
  readonly folder: string;
  /** Told once if messages can't be sent. */
  readonly onError: (error: unknown) => void;
}

/** A notifier that says nothing, for a process that systemd did not start. */
const SILENT: ServiceNotifier = {
  watchdogMs: undefined,
  ready: () => Promise.resolve(),
  status: () => Promise.resolve(),
  feedWatchdog: () => Promise.resolve(),
  stopping: () => Promise.resolve(),
  [Symbol.dispose]() {},
};

/** Half of the time that systemd waits, as sd_watchdog_enabled(3) recommends; `undefined` = off. */
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

/** The notifier for this process. */
export function createServiceNotifier(options: ServiceNotifierOptions): ServiceNotifier {
  const { environment, pid } = options;
  const { notifySocket } = environment;
  if (!notifySocket || !/^[/@]/.test(notifySocket)) return SILENT;
  return new SystemdNotifier(options, {
    target: notifySocket.startsWith("@") ? `\0${notifySocket.slice(1)}` : notifySocket,
    watchdogMs: watchdogPeriodMs(environment, pid),
  });
}

class SystemdNotifier implements ServiceNotifier {
  readonly watchdogMs: number | undefined;
  readonly #options: ServiceNotifierOptions;
  readonly #target: string;
  #socket: Deno.DatagramConn | undefined;
  /** The last message on its way. */
  #sending: Promise<void> = Promise.resolve();
  #failed = false;

  constructor(
    options: ServiceNotifierOptions,
    { target, watchdogMs }: { readonly target: string; readonly watchdogMs: number | undefined },
  ) {
    this.#options = options;
    this.#target = target;
    this.watchdogMs = watchdogMs;
  }

  ready(): Promise<void> {
    return this.#send("READY=1");
  }

  status(text: string): Promise<void> {
    return this.#send(`STATUS=${text.replaceAll("\n", " ")}`);
  }

  feedWatchdog(): Promise<void> {
    return this.#send("WATCHDOG=1");
  }

  stopping(): Promise<void> {
    return this.#send("STOPPING=1");
  }

  [Symbol.dispose](): void {
    this.#socket?.close();
    this.#socket = undefined;
  }

  /** One after the other: Deno refuses a second send on a Unix socket while one is under way. */
  #send(message: string): Promise<void> {
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
   * Deno can't send from a socket that was never given a name. Nobody asks for it, so it goes at once,
   * and its folder is new: in one that others may write to, or that a container with the same process
   * id shares, a name that can be foretold may be taken.
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
