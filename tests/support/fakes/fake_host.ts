/**
 * A machine with a loopback device, addresses and routes, of which `ip`, `sysctl` and the sockets
 * show the same picture. Knows just what making addresses local needs; anything else is an error.
 */
import { type Cidr, cidrContains, tryParseCidr } from "../../../lib/net/cidr.ts";
import { type IpAddress, isLoopback, parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { InterfaceAddress, Network } from "../../../lib/os/network.ts";
import { type CommandAnswer, type CommandCall, FakeCommandRunner } from "./fake_command_runner.ts";

/** The kernel's side of a test. Everything may be changed by the test at any time. */
export class FakeHost {
  /** Whether the process has CAP_NET_ADMIN. */
  mayChange = true;
  /** Whether a socket can be bound to each address of 127.0.0.0/8, as on a real machine. */
  hasLoopbackRange = true;
  /** Addresses that `lo` does not take. */
  readonly refused = new Set<IpAddress>();
  /** Addresses of `lo` besides 127.0.0.1 and ::1. */
  readonly lo = new Set<IpAddress>();
  /** Addresses of other interfaces, by interface. */
  readonly interfaces = new Map<IpAddress, string>();
  readonly localRoutes = new Set<Cidr>();
  /** Rows of `ip -j route show table main`. */
  readonly mainRoutes: Readonly<Record<string, unknown>>[] = [];
  /** `net.ipv4.ip_nonlocal_bind` and `net.ipv6.ip_nonlocal_bind`. */
  readonly nonlocalBind = { IPv4: "0", IPv6: "0" };
  readonly runner = new FakeCommandRunner();
  readonly network: Network;

  constructor() {
    for (const flag of ["-4", "-6"]) {
      this.runner
        .on(`ip ${flag} -force -batch -`, (call) => this.#batch(call))
        .on(`ip ${flag} -j addr show dev lo`, () => ({ stdout: this.#loAsJson() }))
        .on(`ip ${flag} -j route show table main`, () => ({
          stdout: JSON.stringify(this.mainRoutes),
        }));
    }
    this.runner
      .on("sysctl -n net.ipv6.ip_nonlocal_bind", () => ({ stdout: `${this.nonlocalBind.IPv6}\n` }))
      .on("sysctl -w net.ipv6.ip_nonlocal_bind=", (call) => this.#setNonlocalBind(call));
    this.network = {
      listenTcp: () => unused("listenTcp"),
      connectTcp: () => unused("connectTcp"),
      tryConnectTcp: () => unused("tryConnectTcp"),
      listenUdp: ({ hostname, port }) => {
        const address = parseIpAddress(hostname);
        if (!this.canBind(address)) throw new Deno.errors.AddrNotAvailable(address);
        return {
          addr: { hostname, port: port || 40_000 },
          receive: () => unused("receive"),
          send: () => unused("send"),
          close: () => {},
        };
      },
      interfaceAddresses: () => this.#interfaceAddresses(),
    };
  }

  /** Whether a socket can be bound to the address. */
  canBind(address: IpAddress): boolean {
    const family = address.includes(":") ? "IPv6" : "IPv4";
    if (this.nonlocalBind[family] === "1") return true;
    if (isLoopback(address) && (this.hasLoopbackRange || /^(127\.0\.0\.1|::1)$/.test(address))) {
      return true;
    }
    if (this.lo.has(address) || this.interfaces.has(address)) return true;
    // IPv6 wants an address of an interface: a route does not do.
    return family === "IPv4" && [...this.localRoutes].some((range) => cidrContains(range, address));
  }

  /** All lines given to `ip -batch` so far. */
  get batchLines(): string[] {
    return this.runner.calls.filter(({ args }) => args.includes("-batch"))
      .flatMap(({ stdin }) => stdin.trimEnd().split("\n"));
  }

  #batch({ stdin }: CommandCall): CommandAnswer {
    const errors: string[] = [];
    for (const [index, line] of stdin.trimEnd().split("\n").entries()) {
      const error = this.mayChange
        ? this.#carryOut(line)
        : "RTNETLINK answers: Operation not permitted";
      if (error !== undefined) errors.push(error, `Command failed -:${index + 1}`);
    }
    return { code: errors.length > 0 ? 1 : 0, stderr: errors.map((line) => `${line}\n`).join("") };
  }

  #carryOut(line: string): string | undefined {
    const [object, verb, ...rest] = line.split(" ");
    const what = object === "addr" ? rest[0] ?? "" : rest[1] ?? "";
    const range = tryParseCidr(what);
    if (range === undefined || !line.includes(" dev lo")) return `bad line: ${line}`;
    if (object === "addr") {
      const address = parseIpAddress(what.slice(0, what.indexOf("/")));
      if (this.refused.has(address)) return "RTNETLINK answers: No buffer space available";
      return verb === "add"
        ? addTo(this.lo, address, "Error: ipv4: Address already assigned.")
        : removeFrom(this.lo, address, "Error: ipv4: Address not found.");
    }
    return verb === "add"
      ? addTo(this.localRoutes, range, "RTNETLINK answers: File exists")
      : removeFrom(this.localRoutes, range, "RTNETLINK answers: No such process");
  }

  #setNonlocalBind({ args }: CommandCall): CommandAnswer {
    if (!this.mayChange) return { code: 1, stderr: "sysctl: permission denied on key\n" };
    this.nonlocalBind.IPv6 = args[1]?.split("=")[1] ?? "";
    return {};
  }

  #loAsJson(): string {
    return JSON.stringify([{ addr_info: [...this.lo].map((local) => ({ local })) }]);
  }

  #interfaceAddresses(): InterfaceAddress[] {
    return [
      ...["127.0.0.1", "::1", ...this.lo].map((text) => ["lo", parseIpAddress(text)] as const),
      ...[...this.interfaces].map(([address, name]) => [name, address] as const),
    ].map(([interfaceName, address]) => ({ interfaceName, address }));
  }
}

function addTo<T>(set: Set<T>, item: T, error: string): string | undefined {
  if (set.has(item)) return error;
  set.add(item);
  return undefined;
}

function removeFrom<T>(set: Set<T>, item: T, error: string): string | undefined {
  return set.delete(item) ? undefined : error;
}

function unused(what: string): never {
  throw new Error(`The fake host has no ${what}: no test was thought to need it`);
}
