import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { loadConfiguration } from "../../config/load.ts";
import { parseFlags } from "../../config/parse_flags.ts";
import { CommandError } from "../../os/command_runner.ts";
import { parseCidr } from "../../net/cidr.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { RoutingBackends } from "../../app/routing/routing_backends.ts";
import { examineRouting, routingIntent } from "./examine_routing.ts";

const EVERYTHING = ["CAP_NET_ADMIN", "CAP_NET_RAW"];

interface Machine {
  readonly mode?: BackendMode;
  readonly capabilities?: readonly string[];
  /** Tools that are not installed. */
  readonly missing?: readonly string[];
  readonly arpIgnore?: string;
  readonly addresses?: Readonly<Record<string, string>>;
  /** Whether the BGP daemon answers. @default {it is not asked} */
  readonly daemon?: "answers" | "silent";
}

function fakeDaemon(daemon: "answers" | "silent"): RoutingBackends {
  return {
    bgp: () => ({
      sentPrefixes: () =>
        daemon === "answers" ? Promise.resolve(new Map()) : Promise.reject(new Error("no socket")),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    }),
  } as unknown as RoutingBackends;
}

async function configured(...argv: readonly string[]) {
  const { values, problems } = parseFlags(argv);
  assertEquals(problems, []);
  const readTextFile = () => Promise.reject(new Deno.errors.NotFound());
  return await loadConfiguration({ uid: 0, env: () => undefined, readTextFile }, { flags: values });
}

async function examine(
  argv: readonly string[],
  { mode = "nftables", capabilities = EVERYTHING, missing = [], ...machine }: Machine = {},
): Promise<readonly string[]> {
  const { arpIgnore = "0", addresses = {}, daemon } = machine;
  const commands = new FakeCommandRunner()
    .on("sysctl", {
      stdout: `net.ipv4.conf.all.arp_ignore = 0\nnet.ipv4.conf.eth0.arp_ignore = ${arpIgnore}\n`,
    });
  for (const tool of ["arping", "ndisc6"]) {
    commands.on(`${tool} -V`, () => {
      if (!missing.includes(tool)) return {};
      throw new CommandError(tool, ["-V"], "not-found", `${tool} is not installed`);
    });
  }
  const network = new FakeNetwork();
  network.interfaceAddresses = () =>
    Object.entries(addresses).map(([address, interfaceName]) => ({
      address: parseIpAddress(address),
      interfaceName,
      network: parseCidr(`${address}/24`),
    }));
  const { signal } = new AbortController();
  const configuration = await configured(...argv);
  const edges = {
    ...{ commands, network, clock: new FakeClock(), random: () => 0.5 },
    process: { env: () => undefined } as never,
    ...(daemon !== undefined && { routingBackends: fakeDaemon(daemon) }),
  };
  const found = await examineRouting(edges, {
    ...{ configuration, signal, mode, capabilities },
  });
  return found.map(({ severity, id, evidence }) => `${severity} ${id}: ${evidence.join("; ")}`);
}

const POOL = ["--routing", "--load-balancer-pools=192.0.2.0/28"];

Deno.test("examineRouting() finds nothing without --routing, or on a machine that has everything", async () => {
  assertEquals(await examine([]), []);
  assertEquals(await examine(POOL), []);
  assertEquals(routingIntent((await configured()).proxy), undefined);
});

Deno.test("examineRouting() names the missing tools of the families that pools have", async () => {
  const both = ["arping", "ndisc6"];
  assertEquals(await examine(POOL, { missing: both }), [
    "warning layer2-tools: arping, which sends gratuitous ARP: arping is not installed",
  ]);
  assertEquals(
    await examine(["--routing", "--load-balancer-pools=2001:db8::/120"], { missing: both }),
    [
      "warning layer2-tools: ndisc6, which sends neighbour solicitations: ndisc6 is not installed",
    ],
  );
});

Deno.test("examineRouting() warns where every node would answer ARP", async () => {
  const addresses = { "192.0.2.17": "eth0", "198.51.100.1": "eth1" };
  const evidence = "warning layer2-arp: net.ipv4.conf.eth0.arp_ignore is 0";
  assertEquals(await examine(POOL, { mode: "ipvs", addresses }), [evidence]);
  assertEquals(await examine(POOL, { mode: "ipvs", addresses, arpIgnore: "1" }), []);
  assertEquals(await examine(POOL, { mode: "userspace", addresses }), []);
  assertEquals(await examine([...POOL, "--ipvs-strict-arp"], { mode: "ipvs", addresses }), []);
});

Deno.test("examineRouting() names missing capabilities, and none if they are unknown", async () => {
  assertEquals(await examine(POOL, { capabilities: ["CAP_NET_ADMIN"] }), [
    "warning layer2-capabilities: tools are started without CAP_NET_RAW",
  ]);
});

Deno.test("examineRouting() finds pools that have addresses of the machine, pods or Services", async () => {
  const found = await examine([
    "--routing",
    "--load-balancer-pools=a=192.0.2.0/28,b=10.244.3.0/24,c=10.96.200.1",
    "--cluster-cidr=10.244.0.0/16",
    "--service-cidr=10.96.0.0/16",
  ], { addresses: { "192.0.2.3": "eth0", "192.0.2.4": "kube-ipvs0" } });
  assertEquals(found, [
    "info pool-node-address: pool 'a' has 192.0.2.3 of eth0",
    "warning pool-overlaps-range: pool 'b' has addresses of 10.244.0.0/16, a range of pods; " +
    "pool 'c' has addresses of 10.96.0.0/16, a range of cluster IPs",
  ]);
});

Deno.test("routingIntent() names the class of Services and the socket of the own BGP daemon", async () => {
  assertEquals(
    routingIntent((await configured(...POOL, "--bgp", "--bgp-control-socket=/x")).proxy),
    {
      assignsByDefault: true,
      bgpSocket: "/x",
    },
  );
  assertEquals(routingIntent((await configured("--routing")).proxy), { assignsByDefault: false });
});

Deno.test("examineRouting() asks the BGP daemon, if BGP is enabled", async () => {
  const bgp = [...POOL, "--bgp"];
  assertEquals(await examine(bgp, { daemon: "answers" }), []);
  assertEquals(await examine(bgp, { daemon: "silent" }), ["warning bgp-daemon: no socket"]);
  assertEquals(await examine(POOL, { daemon: "silent" }), []);
});
