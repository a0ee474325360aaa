import type { IpAddress } from "../../net/ip_address.ts";
import { tryParsePort } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import { addressesOfHost } from "../../os/host_addresses.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import type { KnownHost } from "../../proxy/known_hosts.ts";
import { API_SERVER, hostsAt } from "../service/host_registry.ts";

/** Addresses that are remembered: the load balancers of a cloud get others now and then. */
const MOST_CONNECTIONS = 32;
/** Until the name is known; then it is looked up again after each new connection. */
const RETRY_MS = 5_000;

interface ServerAddressesDependencies {
  readonly clock: Clock;
  /** Returns the addresses of a host name. @default {as the machine knows them} */
  readonly lookUp?: typeof addressesOfHost;
}

interface ServerAddressesOptions {
  /** URL of the API server. */
  readonly server: string;
  readonly onServer: (addresses: ReadonlyMap<IpAddress, KnownHost>) => void;
}

/** The addresses of the API server: those of its name, and those of connections to it. */
export class ServerAddresses {
  readonly #clock: Clock;
  readonly #lookUp: typeof addressesOfHost;
  readonly #options: ServerAddressesOptions;
  readonly #host: KnownHost;
  readonly #name: string;
  #ofName: readonly string[] = [];
  readonly #ofConnections = new Set<string>();
  #wake = Promise.withResolvers<void>();

  constructor(
    { clock, lookUp = addressesOfHost }: ServerAddressesDependencies,
    options: ServerAddressesOptions,
  ) {
    const { hostname, port, protocol } = new URL(options.server);
    const usual = protocol === "http:" ? 80 : 443;
    const number = tryParsePort(Number(port || usual));
    this.#clock = clock;
    this.#lookUp = lookUp;
    this.#options = options;
    this.#host = { owner: API_SERVER, ...(number !== undefined && { ports: [number] }) };
    this.#name = hostname.replace(/^\[|\]$/g, "");
  }

  /** Takes the other end of a new connection. The server may have got other addresses. */
  add(address: string): void {
    this.#ofConnections.delete(address);
    this.#ofConnections.add(address);
    const [oldest] = this.#ofConnections;
    if (this.#ofConnections.size > MOST_CONNECTIONS) this.#ofConnections.delete(oldest!);
    this.#report();
    this.#wake.resolve();
  }

  /**
   * Looks the name up until the signal is aborted; does not wait for a resolver then. Never rejects.
   */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.race([this.#follow(signal), whenAborted(signal)]);
    this.#wake.resolve();
  }

  async #follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.#wake = Promise.withResolvers();
      const found = await this.#lookUp(this.#name).catch(() => undefined);
      if (signal.aborted) return;
      if (found !== undefined) {
        this.#ofName = found;
        this.#report();
      }
      const retry = found === undefined && this.#clock.sleep(RETRY_MS, signal).catch(() => {});
      await Promise.race([this.#wake.promise, ...retry ? [retry] : []]);
    }
  }

  #report(): void {
    this.#options.onServer(hostsAt([...this.#ofName, ...this.#ofConnections], this.#host));
  }
}
