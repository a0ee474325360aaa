/**
 * A node whose UDP Services are rules that the test itself writes, in the shape of kube-proxy's:
 * one namespace in which client, node and endpoints live. A packet that no rule rewrites is lost.
 *
 * @module
 */
import { type CommandRunner, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { startEchoServer } from "../drivers/echo_network.ts";
import { Namespace } from "./netns.ts";

/** Addresses of one family. */
export interface UdpRulesAddresses {
  readonly vip: string;
  readonly node: string;
  /** Echo servers `a` and `b` listen there, on {@linkcode ENDPOINT_PORT}. */
  readonly endpoints: Readonly<Record<"a" | "b", string>>;
  /** No address of the node and of no Service; packets to it get lost. */
  readonly foreign: string;
}

/** The addresses that are used. */
export const UDP_ADDRESSES: Readonly<Record<IpFamily, UdpRulesAddresses>> = {
  IPv4: {
    vip: "10.96.0.10",
    node: "192.168.0.1",
    endpoints: { a: "10.1.0.1", b: "10.1.0.2" },
    foreign: "203.0.113.7",
  },
  IPv6: {
    vip: "fd00:96::a",
    node: "fd00:192::1",
    endpoints: { a: "fd00:1::1", b: "fd00:1::2" },
    foreign: "fd00:203::7",
  },
};

export const ENDPOINT_PORT = 5353;

/** The node. Disposing of it removes everything. */
export class UdpRulesNode implements AsyncDisposable {
  readonly namespace: Namespace;
  /** Runs commands in the namespace. */
  readonly commands: CommandRunner;

  private constructor(namespace: Namespace) {
    this.namespace = namespace;
    this.commands = {
      run: (program, args, options) =>
        systemCommandRunner.run("ip", ["netns", "exec", namespace.name, program, ...args], options),
    };
  }

  /** Makes the namespace and starts the echo servers. */
  static async create(): Promise<UdpRulesNode> {
    const namespace = await Namespace.create("udp");
    const node = new UdpRulesNode(namespace);
    try {
      const { IPv4, IPv6 } = UDP_ADDRESSES;
      await namespace.ipBatch([
        "link add void type veth peer name beyond",
        // Without ARP, the interface accepts packets to every address. If it were up already, Linux
        // would add its IPv6 addresses again, up to a second later.
        "link set void arp off",
        "link set beyond up",
        `addr add ${IPv4.node}/24 dev void`,
        `addr add ${IPv6.node}/64 dev void`,
        "link set void up",
        "route add 0.0.0.0/0 dev void",
        "route add ::/0 dev void",
        ...Object.values(IPv4.endpoints).map((address) => `addr add ${address}/32 dev lo`),
        ...Object.values(IPv6.endpoints).map((address) => `addr add ${address}/128 dev lo`),
      ]);
      for (const program of ["iptables", "ip6tables"]) {
        // The kernel tracks a namespace's flows only while some rule asks for their state.
        const rule = "-A OUTPUT -m conntrack --ctstate INVALID -j DROP";
        await namespace.output(program, rule.split(" "));
      }
      for (const name of ["a", "b"] as const) {
        await startEchoServer(namespace, {
          name,
          listen: [IPv4, IPv6].map(({ endpoints }) => ({
            address: endpoints[name],
            port: ENDPOINT_PORT,
          })),
        });
      }
      return node;
    } catch (error) {
      await namespace[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Makes these the only rules of a family: each turns packets to `address` and `port` to an endpoint. */
  async setRules(
    family: IpFamily,
    rules: readonly { readonly address: string; readonly port: number; readonly to: "a" | "b" }[],
  ): Promise<void> {
    const { endpoints } = UDP_ADDRESSES[family];
    const bracketed = (address: string) => family === "IPv6" ? `[${address}]` : address;
    const lines = rules.map(({ address, port, to }) =>
      `-A OUTPUT -p udp -d ${address} --dport ${port} -j DNAT ` +
      `--to-destination ${bracketed(endpoints[to])}:${ENDPOINT_PORT}\n`
    );
    const program = family === "IPv6" ? "ip6tables-restore" : "iptables-restore";
    const stdin = `*nat\n:OUTPUT ACCEPT [0:0]\n${lines.join("")}COMMIT\n`;
    const { code, stderr } = await this.commands.run(program, [], { stdin });
    if (code !== 0) throw new Error(`Cannot write rules by ${program}: ${stderr}`);
  }

  /** Tracked UDP flows of both families to this address and port, each with its id. */
  async flows(address: string, port: number): Promise<string[]> {
    const family = address.includes(":") ? "ipv6" : "ipv4";
    const table = await this.namespace.output("conntrack", [
      ...["-L", "-f", family, "-p", "udp", "-o", "id", "--orig-dst", address],
      ...["--orig-port-dst", `${port}`],
    ]);
    return table.split("\n").filter((line) => line !== "")
      .map((line) => /\bid=\d+/.exec(line)?.[0] ?? line);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.namespace[Symbol.asyncDispose]();
  }
}
