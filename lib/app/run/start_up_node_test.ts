import { configurationOf } from "../../../tests/support/drivers/own_flags.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { TEST_PROCESS } from "../../../tests/support/fakes/test_dependencies.ts";
import type { Node } from "../../api/kinds/node.ts";
import { defaultConfiguration, type KubeProxyConfiguration } from "../../config/configuration.ts";
import { type IpFamily, parseIpAddress } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { NodeMismatchError, nodeNameOf, StartUp } from "./start_up.ts";
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
    readonly mode?: BackendMode;
    readonly name?: string;
  },
  run: (stage: Stage, ended: Promise<void>) => Promise<void>,
): Promise<void> {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const { proxy = {}, expected = true, families = ["IPv4", "IPv6"], name = "node-a" } = options;
  const { mode = "userspace" } = options;
  const manifests = expected ? [] : ["examples"];
  const loaded = await configurationOf(["--control-socket=/run/test/control.sock"]);
  const identity = new StartUp(
    { clock, logger, commands: new FakeCommandRunner(), random: () => 0, process: TEST_PROCESS },
    {
      ...{ ...loaded, mode, families, relay: { ...loaded.relay, manifests } },
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

Deno.test("StartUp knows the names that Kubernetes accepts", async (t) => {
  const rows: readonly [name: string, expected: boolean][] = [
    ["node-a.example.org", true],
    ["7", true],
    ["a".repeat(253), true],
    ["a".repeat(254), false],
    ["node_a", false],
    ["Node-a", false],
    ["-a", false],
    ["a..b", false],
    ["a.", false],
    ["a\nb", false],
  ];
  for (const [name, expected] of rows) {
    await t.step(
      JSON.stringify(name).slice(0, 30),
      () =>
        withIdentity({ name }, async ({ lines }) => {
          await settle();
          assertEquals(lines().length === 0, expected);
        }),
    );
  }
});

const DUAL = ["90.90.90.90", "2001:db8::2"];

/** control-plane 2.3: Node, bindAddress, primary family, IPv4 address, IPv6 address. */
const ROWS: readonly (readonly [readonly string[], string, IpFamily, string, string])[] = [
  [[], "::", "IPv4", "127.0.0.1 (none)", "::1 (none)"],
  [[], "fd00:4321::2", "IPv6", "127.0.0.1 (none)", "fd00:4321::2 (bindAddress)"],
  [["192.168.1.1"], "::", "IPv4", "192.168.1.1 (Node)", "::1 (none)"],
  [["fd00:1234::1"], "0.0.0.0", "IPv6", "127.0.0.1 (none)", "fd00:1234::1 (Node)"],
  [DUAL.toReversed(), "0.0.0.0", "IPv6", "90.90.90.90 (Node)", "2001:db8::2 (Node)"],
  [DUAL.toReversed(), "80.80.80.80", "IPv4", "80.80.80.80 (bindAddress)", "2001:db8::2 (Node)"],
  [["90.90.90.90", "91.91.91.91"], "0.0.0.0", "IPv4", "90.90.90.90 (Node)", "::1 (none)"],
];

for (const [addresses, bindAddress, primaryFamily, ...ofFamilies] of ROWS) {
  Deno.test(`StartUp chooses of ${addresses.join(" and ")} with bindAddress ${bindAddress}`, () =>
    withIdentity({ proxy: { bindAddress } }, async ({ clock, identity, logger }) => {
      identity.onNode(node(addresses));
      await clock.advance(30_000);
      const { fields } = logger.lines.find(({ message }) => message === "Chose node addresses")!;
      const [IPv4, IPv6] = ofFamilies;
      assertEquals(fields, { primaryFamily, IPv4, IPv6 });
    }));
}

Deno.test("StartUp goes by the default routes on a host without a cluster", () =>
  withIdentity({ expected: false }, async ({ identity, logger }) => {
    await settle();
    identity.onRouteSources([parseIpAddress("2001:db8::7")]);
    const IPv6 = "2001:db8::7 (default route)";
    assertEquals(logger.lines.at(-1)!.fields, {
      ...{ primaryFamily: "IPv6", IPv4: "127.0.0.1 (none)", IPv6 },
    });
  }));

const BOTH = "10.0.0.0/8,fd00::/48";
const OTHERS = "nodePortAddresses: other fields name both IP families";
const { ipvs } = defaultConfiguration();

/** What contradicts itself or a Node of IPv4, and the warnings. */
const SANITY: readonly {
  readonly proxy: Partial<KubeProxyConfiguration>;
  readonly mode?: BackendMode;
  readonly families?: readonly IpFamily[];
  readonly podCIDRs?: readonly string[];
  readonly found: readonly string[];
}[] = [
  { proxy: {}, found: [] },
  { proxy: { nodePortAddresses: [] }, found: ["nodePortAddresses: it is not set"] },
  { proxy: { nodePortAddresses: [] }, mode: "nftables", found: [] },
  { proxy: { nodePortAddresses: [] }, mode: "userspace", found: [] },
  { proxy: { nodePortAddresses: ["192.0.2.0/24"], clusterCIDR: BOTH }, found: [OTHERS] },
  {
    proxy: { nodePortAddresses: ["192.0.2.0/24"], detectLocalMode: "NodeCIDR" },
    podCIDRs: BOTH.split(","),
    found: [OTHERS],
  },
  {
    proxy: {
      nodePortAddresses: ["192.0.2.0/24"],
      ipvs: { ...ipvs, excludeCIDRs: ["fd00::/64"] },
    },
    found: [OTHERS],
  },
  { proxy: { nodePortAddresses: ["192.0.2.0/24"], clusterCIDR: "10.0.0.0/8" }, found: [] },
  { proxy: { nodePortAddresses: ["localhost", "10.0.0.0/8"], clusterCIDR: BOTH }, found: [] },
  {
    proxy: { nodePortAddresses: ["2001:db8::/64"] },
    found: ["nodePortAddresses: it has no IPv4 range"],
  },
  { proxy: { clusterCIDR: "fd00::/48" }, found: [] },
  {
    proxy: { clusterCIDR: "fd00::/48", detectLocalMode: "BridgeInterface" },
    families: ["IPv4"],
    found: [],
  },
  { proxy: {}, podCIDRs: ["fd00::/64"], found: [] },
  {
    proxy: {
      ipvs: { ...ipvs, excludeCIDRs: ["fd00::/64"] },
      healthzBindAddress: "[2001:db8::1]:10256",
      metricsBindAddress: "[::]:10249",
    },
    families: ["IPv4"],
    found: [
      "ipvs.excludeCIDRs: it has no IPv4 range",
      "healthzBindAddress: [2001:db8::1]:10256 is not IPv4",
    ],
  },
];

Deno.test("StartUp warns of settings that contradict each other or the node", async (t) => {
  for (const [index, { proxy, podCIDRs, found, ...options }] of SANITY.entries()) {
    const all = { mode: "iptables" as const, ...options };
    const row = { ...all, proxy: { nodePortAddresses: ["primary"], ...proxy } };
    await t.step(
      `${index} ${found[0] ?? "nothing"}`,
      () =>
        withIdentity(row, async ({ identity, logger }) => {
          identity.onNode(node(["192.0.2.1"], podCIDRs));
          await settle();
          const warnings = logger.lines.filter(({ level }) => level === "warn");
          const texts = warnings.map(({ fields: { field, problem } }, at) =>
            `${field}: ${problem}`.slice(0, found[at]?.length)
          );
          assertEquals(texts, found);
        }),
    );
  }
});
