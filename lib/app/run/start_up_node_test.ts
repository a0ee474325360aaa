import { configurationOf } from "../../../tests/support/drivers/own_flags.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { TEST_PROCESS } from "../../../tests/support/fakes/test_dependencies.ts";
import type { Node } from "../../api/kinds/node.ts";
import { defaultConfiguration, type KubeProxyConfiguration } from "../../config/configuration.ts";
import { type IpFamily, parseIpAddress } from "../../net/ip_address.ts";
import { isNodeName, nodeAddressesOf, NodeMismatchError, nodeNameOf, StartUp } from "./start_up.ts";
import { assertEquals, assertRejects, assertThrows } from "@std/assert";

interface Stage {
  readonly clock: FakeClock;
  readonly identity: StartUp;
  /** `level: message`. */
  lines(): string[];
  readonly logger: MemoryLogger;
}

async function withIdentity(
  options: {
    readonly proxy?: Partial<KubeProxyConfiguration>;
    readonly expected?: boolean;
    readonly families?: readonly IpFamily[];
    readonly name?: string;
  },
  run: (stage: Stage, ended: Promise<void>) => Promise<void>,
): Promise<void> {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const { proxy = {}, expected = true, families = ["IPv4", "IPv6"], name = "node-a" } = options;
  const manifests = expected ? [] : ["examples"];
  const loaded = await configurationOf(["--control-socket=/run/test/control.sock"]);
  const identity = new StartUp(
    { clock, logger, commands: new FakeCommandRunner(), random: () => 0, process: TEST_PROCESS },
    {
      ...{ ...loaded, mode: "userspace", families, relay: { ...loaded.relay, manifests } },
      proxy: { ...defaultConfiguration(), bindAddress: "0.0.0.0", ...proxy },
    },
    name,
  );
  const controller = new AbortController();
  const ended = identity.watchNode(controller.signal);
  ended.catch(() => {});
  const lines = () => logger.lines.map(({ level, message }) => `${level}: ${message}`);
  await run({ clock, identity, lines, logger }, ended);
  controller.abort();
  await ended.catch((error) => {
    if (!(error instanceof NodeMismatchError)) throw error;
  });
  assertEquals(clock.pendingTimers, 0);
}

function node(addresses: readonly string[], podCIDRs: readonly string[] = []): Node {
  return {
    metadata: { name: "node-a" },
    spec: { podCIDRs },
    status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
  };
}

const NODE_CIDR = { detectLocalMode: "NodeCIDR" };

Deno.test("StartUp says at once that no Node can have its name", () =>
  withIdentity({ name: "(none)" }, async ({ lines }) => {
    await settle();
    assertEquals(lines(), [
      "warn: No Node can have this name; set the Node's name with --hostname-override",
    ]);
  }));

Deno.test("StartUp asks nothing of its name without a cluster", () =>
  withIdentity({ name: "(none)", expected: false }, async ({ lines }) => {
    await settle();
    assertEquals(lines(), ["info: Chose node addresses"]);
  }));

Deno.test("StartUp logs its addresses and their source once", () =>
  withIdentity({}, async ({ clock, identity, lines, logger }) => {
    identity.onNode(node(["192.168.1.1"]));
    identity.onNode(node(["192.168.1.1"]));
    await clock.advance(60_000);
    assertEquals(lines(), ["info: Chose node addresses"]);
    assertEquals(logger.lines[0]?.fields, {
      primaryFamily: "IPv4",
      IPv4: "192.168.1.1 (Node)",
      IPv6: "::1 (none)",
    });
  }));

Deno.test("StartUp continues with loopback after 30 s, and adopts addresses that appear later", () =>
  withIdentity({}, async ({ clock, identity, lines }) => {
    await clock.advance(29_999);
    assertEquals(lines(), []);
    await clock.advance(1);
    identity.onNode(node([]));
    assertEquals(lines(), [
      "warn: Continuing without addresses of the Node; they are used when they appear",
      "info: Chose node addresses",
    ]);
    identity.onNode(node(["192.168.1.1"]));
    assertEquals(lines()[2], "info: The addresses of the Node changed; node ports follow");
  }));

Deno.test("StartUp waits for nothing if there is no cluster", () =>
  withIdentity({ expected: false }, async ({ clock, lines }) => {
    await clock.advance(0);
    assertEquals(lines(), ["info: Chose node addresses"]);
  }));

Deno.test("StartUp reports changed addresses and the deletion", () =>
  withIdentity({}, async ({ identity, lines }) => {
    identity.onNode(node(["192.168.1.1"]));
    identity.onNode(node(["192.168.1.2"]));
    identity.onNodeDeleted();
    assertEquals(lines().slice(1), [
      "info: The addresses of the Node changed; node ports follow",
      "warn: The Node was deleted; continuing with its last known state",
    ]);
    await Promise.resolve();
  }));

Deno.test("StartUp reports podCIDRs that are missing for 5 more minutes, appear, or change", () =>
  withIdentity({ proxy: NODE_CIDR }, async ({ clock, identity, lines }) => {
    identity.onNode(node(["192.168.1.1"]));
    await clock.advance(299_999);
    assertEquals(lines().length, 1);
    await clock.advance(1);
    assertEquals(lines().length, 2);
    assertEquals(lines()[1]?.startsWith("error: Cannot recognize pods"), true);
    identity.onNode(node(["192.168.1.1"], ["10.1.0.0/24"]));
    identity.onNode(node(["192.168.1.1"], ["10.1.0.0/24"]));
    identity.onNode(node(["192.168.1.1"], ["10.2.0.0/24"]));
    assertEquals(lines().slice(2), [
      "info: Chose podCIDRs of the Node as the ranges of pods",
      "warn: The podCIDRs of the Node changed; the ranges of pods follow",
    ]);
  }));

Deno.test("StartUp does not look at podCIDRs in another mode than NodeCIDR", () =>
  withIdentity({}, async ({ clock, identity, lines }) => {
    identity.onNode(node(["192.168.1.1"], ["10.1.0.0/24"]));
    identity.onNode(node(["192.168.1.1"], ["10.2.0.0/24"]));
    await clock.advance(600_000);
    assertEquals(lines(), ["info: Chose node addresses"]);
  }));

Deno.test("StartUp ends the process for podCIDRs without a range of the node's family", () =>
  withIdentity({ proxy: NODE_CIDR }, async ({ identity }, ended) => {
    identity.onNode(node(["192.168.1.1"], ["fd00::/64"]));
    await assertRejects(() => ended, NodeMismatchError, "fd00::/64 has no IPv4 range");
  }));

Deno.test("StartUp ends the process for a clusterCIDR of the family that does not run", () =>
  withIdentity(
    { proxy: { clusterCIDR: "fd00::/48" }, expected: false, families: ["IPv4"] },
    async (_, ended) => {
      await assertRejects(() => ended, NodeMismatchError, "clusterCIDR: fd00::/48 has no IPv4");
    },
  ));

Deno.test("StartUp warns once of a setting that makes no sense", () =>
  withIdentity({ proxy: { nodePortAddresses: ["fd00::/64"] } }, async ({ identity, lines }) => {
    identity.onNode(node(["192.168.1.1"]));
    identity.onNode(node(["192.168.1.2"]));
    await Promise.resolve();
    assertEquals(lines().filter((line) => line === "warn: Setting is not plausible").length, 1);
  }));

Deno.test("StartUp holds a configuration that is taken up later against the node", () =>
  withIdentity({}, async ({ identity, lines }, ended) => {
    const proxy = { ...defaultConfiguration(), bindAddress: "0.0.0.0" };
    const warnings = () => lines().filter((line) => line.startsWith("warn: Setting"));
    identity.onConfiguration({ ...proxy, nodePortAddresses: ["fd00::/64"] });
    assertEquals(warnings(), [], "nothing is known of the node yet");
    identity.onNode(node(["192.168.1.1"]));
    assertEquals(warnings().length, 1);
    identity.onConfiguration({ ...proxy, nodePortAddresses: ["10.0.0.0/8", "fd00::/64"] });
    assertEquals(warnings().length, 1);
    const clusterCIDR = "10.0.0.0/8,fd00::/48";
    identity.onConfiguration({ ...proxy, clusterCIDR, nodePortAddresses: ["10.0.0.0/8"] });
    assertEquals(warnings().length, 2);
    identity.onNode(node(["192.168.1.1"], ["fd00::/64"]));
    identity.onConfiguration({ ...proxy, detectLocalMode: "NodeCIDR" });
    await assertRejects(() => ended, NodeMismatchError, "spec.podCIDRs of the Node");
  }));

Deno.test("StartUp reports once that the node's own family does not run, and continues", () =>
  withIdentity({ families: ["IPv4"] }, async ({ clock, identity, lines }) => {
    const isReported = () =>
      lines().filter((line) => line.startsWith("error: The node's own IP family"));
    await clock.advance(30_000);
    assertEquals(isReported(), [], "the family of the node is a guess");
    for (const last of [1, 2]) identity.onNode(node([`2001:db8::${last}`, "10.0.0.1"]));
    assertEquals(isReported().length, 1);
  }));

Deno.test("StartUp ends nothing while it only guesses the family of the node", () =>
  withIdentity({ proxy: NODE_CIDR }, async ({ clock, identity }, ended) => {
    identity.onNode(node([], ["fd00::/64"]));
    await clock.advance(30_000);
    identity.onNode(node(["2001:db8::1"], ["fd00::/64"]));
    const first = await Promise.race([ended.then(() => "ended", String), clock.advance(1)]);
    assertEquals(first, undefined);
  }));

for (
  const [hostnameOverride, hostname, expected] of [
    ["", "Node-A", "node-a"],
    ["", " node-a\n", "node-a"],
    ["Other", "node-a", "Other"],
  ] as const
) {
  Deno.test(`nodeNameOf() makes '${expected}' of '${hostnameOverride}' on '${hostname.trim()}'`, () =>
    assertEquals(nodeNameOf({ hostnameOverride }, { hostname }), expected));
}

Deno.test("nodeNameOf() throws if no name is configured", () => {
  for (const hostname of ["", " \n"]) {
    assertThrows(() => nodeNameOf({ hostnameOverride: "" }, { hostname }), Error, "no host name");
  }
});

Deno.test("isNodeName() accepts the names that Kubernetes accepts", async (t) => {
  const rows: readonly [name: string, expected: boolean][] = [
    ["node-a.example.org", true],
    ["7", true],
    ["a".repeat(253), true],
    ["a".repeat(254), false],
    ["", false],
    ["(none)", false],
    ["node_a", false],
    ["Node-a", false],
    ["-a", false],
    ["a..b", false],
    ["a.", false],
    ["a b", false],
    ["a,b=c", false],
    ["a\nb", false],
  ];
  for (const [name, expected] of rows) {
    await t.step(JSON.stringify(name).slice(0, 30), () => assertEquals(isNodeName(name), expected));
  }
});

const DUAL = ["90.90.90.90", "2001:db8::2"];

/** control-plane 2.3: Node, bindAddress, primary family, IPv4 address, IPv6 address. */
const ROWS: readonly (readonly [readonly string[], string, string, string, string])[] = [
  [[], "0.0.0.0", "IPv4", "127.0.0.1", "::1"],
  [[], "::", "IPv4", "127.0.0.1", "::1"],
  [[], "10.0.0.1", "IPv4", "10.0.0.1", "::1"],
  [[], "fd00:4321::2", "IPv6", "127.0.0.1", "fd00:4321::2"],
  [["192.168.1.1"], "::", "IPv4", "192.168.1.1", "::1"],
  [["fd00:1234::1"], "0.0.0.0", "IPv6", "127.0.0.1", "fd00:1234::1"],
  [DUAL, "::", "IPv4", "90.90.90.90", "2001:db8::2"],
  [DUAL.toReversed(), "0.0.0.0", "IPv6", "90.90.90.90", "2001:db8::2"],
  [DUAL.toReversed(), "80.80.80.80", "IPv4", "80.80.80.80", "2001:db8::2"],
  [DUAL.toReversed(), "127.0.0.1", "IPv4", "127.0.0.1", "2001:db8::2"],
  [DUAL, "::1", "IPv6", "90.90.90.90", "::1"],
  [["90.90.90.90", "91.91.91.91"], "0.0.0.0", "IPv4", "90.90.90.90", "::1"],
];

for (const [node, bindAddress, primary, ipv4, ipv6] of ROWS) {
  const name = node.length === 0 ? "no address" : node.join(" and ");
  Deno.test(`nodeAddressesOf() for a Node with ${name} and bindAddress ${bindAddress}`, () => {
    const found = nodeAddressesOf(node.map(parseIpAddress), parseIpAddress(bindAddress));
    assertEquals([found.primary, found.IPv4.address, found.IPv6.address], [primary, ipv4, ipv6]);
  });
}

Deno.test("nodeAddressesOf() names the source of each address", () => {
  const found = nodeAddressesOf([parseIpAddress("2001:db8::2")], parseIpAddress("10.0.0.1"));
  assertEquals([found.IPv4.origin, found.IPv6.origin], ["bindAddress", "Node"]);
  assertEquals(nodeAddressesOf([], parseIpAddress("::")).IPv6.origin, "none");
});
