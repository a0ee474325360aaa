/** Routers that run FRR or gobgpd, each in a network namespace. */
import { systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { eventually } from "../eventually.ts";
import type { Namespace } from "./netns.ts";

/** A path that a router has. */
interface FrrPath {
  readonly aspath: { readonly string: string };
  readonly community?: { readonly string: string };
  readonly largeCommunity?: { readonly string: string };
  readonly nexthops: readonly { readonly ip: string }[];
  readonly peer: { readonly peerId: string };
  readonly stale?: boolean;
}

/** A router that runs FRR: zebra, bgpd and bfdd. */
export class FrrRouter {
  readonly #folder: string;

  constructor(readonly namespace: Namespace, folder: string) {
    this.#folder = folder;
  }

  /** Starts the daemons. `lines`: the configuration of bgpd. */
  async start(lines: readonly string[]): Promise<void> {
    await Deno.mkdir(this.#folder, { recursive: true });
    await Deno.writeTextFile(`${this.#folder}/bgpd.conf`, `${lines.join("\n")}\n`);
    for (const daemon of ["zebra", "bfdd"]) {
      await Deno.writeTextFile(`${this.#folder}/${daemon}.conf`, "log stdout\n");
    }
    // The daemons change to the user of the package, and write their sockets into the folder.
    await systemCommandRunner.run("chown", ["-R", "frr:frr", this.#folder]);
    await this.startDaemon("zebra");
    await eventually("zebra listens", () => exists(`${this.#folder}/zserv.api`));
    await this.startDaemon("bfdd", ["--bfdctl", `${this.#folder}/bfdd.sock`]);
    await this.startDaemon("bgpd");
  }

  /** Starts one daemon and waits for its terminal. */
  async startDaemon(daemon: string, flags: readonly string[] = []): Promise<void> {
    const folder = this.#folder;
    const process = this.namespace.start(`/usr/lib/frr/${daemon}`, [
      ...["-f", `${folder}/${daemon}.conf`, "-i", `${folder}/${daemon}.pid`],
      ...["-z", `${folder}/zserv.api`, "--vty_socket", folder, "-P", "0", ...flags],
    ]);
    await eventually(`${daemon} listens`, () => {
      if (process.hasEnded) throw new Error(`${daemon} ended: ${process.errors}`);
      return exists(`${folder}/${daemon}.vty`);
    });
  }

  /** Runs commands of FRR's terminal. */
  async vtysh(...commands: readonly string[]): Promise<string> {
    const args = ["--vty_socket", this.#folder, ...commands.flatMap((command) => ["-c", command])];
    const { stdout } = await systemCommandRunner.run("vtysh", args);
    return stdout;
  }

  /** The paths to a prefix that came from the node. */
  async paths(prefix: string): Promise<readonly FrrPath[]> {
    const family = prefix.includes(":") ? "ipv6" : "ipv4";
    const text = await this.vtysh(`show bgp ${family} unicast ${prefix} json`);
    const { paths = [] } = JSON.parse(text || "{}") as { readonly paths?: readonly FrrPath[] };
    return paths.filter(({ nexthops }) =>
      nexthops.some(({ ip }) => ip !== "0.0.0.0" && ip !== "::")
    );
  }
}

/** A router that runs gobgpd. */
export class GobgpRouter {
  readonly #folder: string;

  constructor(readonly namespace: Namespace, folder: string) {
    this.#folder = folder;
  }

  /** Starts the daemon. `toml`: its configuration. */
  async start(toml: string): Promise<void> {
    await Deno.mkdir(this.#folder, { recursive: true });
    const path = `${this.#folder}/gobgpd.toml`;
    await Deno.writeTextFile(path, toml);
    const api = ["--api-hosts", `unix://${this.#folder}/api.sock`, "--pprof-disable"];
    this.namespace.start("gobgpd", ["-f", path, ...api]);
    await eventually("gobgpd listens", () => exists(`${this.#folder}/api.sock`));
  }

  /** Runs a command of gobgpd's client. */
  async gobgp(command: string): Promise<string> {
    const target = `unix://${this.#folder}/api.sock`;
    const args = ["--target", target, ...command.split(" ")];
    const { code, stdout, stderr } = await systemCommandRunner.run("gobgp", args);
    if (code !== 0) throw new Error(`Cannot run 'gobgp ${command}': ${stderr}${stdout}`);
    return stdout;
  }

  /** Whether it has a route, with this text in its line of the table. */
  async has(prefix: string, text = ""): Promise<boolean> {
    const table = await this.gobgp("global rib");
    return table.split("\n").some((line) => line.includes(prefix) && line.includes(text));
  }
}

/** The configuration of FRR for a session with the node, as lines of `router bgp`. */
export function frrConfiguration(
  { neighbor = [], networks = [] }: {
    readonly neighbor?: readonly string[];
    readonly networks?: readonly string[];
  } = {},
): readonly string[] {
  return [
    "log stdout",
    "router bgp 64513",
    " bgp router-id 192.0.2.2",
    " no bgp ebgp-requires-policy",
    " no bgp default ipv4-unicast",
    " no bgp network import-check",
    " neighbor 192.0.2.1 remote-as 64512",
    " neighbor 192.0.2.1 timers 3 9",
    " neighbor 192.0.2.1 timers connect 1",
    ...neighbor.map((line) => ` neighbor 192.0.2.1 ${line}`),
    " address-family ipv4 unicast",
    ...networks.map((prefix) => `  network ${prefix}`),
    "  neighbor 192.0.2.1 activate",
    " exit-address-family",
  ];
}

/** The configuration of gobgpd for a session with the node. */
export function gobgpConfiguration(
  { as, id }: { readonly as: number; readonly id: string },
): string {
  return `
[global.config]
  as = ${as}
  router-id = "${id}"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "192.0.2.1"
    peer-as = 64512
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
`;
}

/**
 * The configuration of FRR, AS 64513, with BFD and equal-cost paths to so many nodes, which are 192.0.2.1
 * and so on, in AS 64512.
 */
export function frrOfScene(nodes: number): readonly string[] {
  const addresses = Array.from({ length: nodes }, (_, index) => `192.0.2.${index + 1}`);
  return [
    "log stdout",
    "router bgp 64513",
    " no bgp ebgp-requires-policy",
    " no bgp default ipv4-unicast",
    ...addresses.flatMap((address) =>
      [
        "remote-as 64512",
        "timers 3 9",
        "timers connect 1",
        ...["bfd", "bfd 3 200 200"],
      ].map((line) => ` neighbor ${address} ${line}`)
    ),
    " address-family ipv4 unicast",
    "  maximum-paths 8",
    ...addresses.map((address) => `  neighbor ${address} activate`),
    " exit-address-family",
  ];
}

async function exists(path: string): Promise<boolean> {
  return await Deno.lstat(path).then(() => true, () => false);
}
