import { assertEquals, assertRejects } from "@std/assert";
import type { Node } from "../../api/kinds/node.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { NodeIdentity, NodeMismatchError } from "./node_identity.ts";

interface Stage {
  readonly clock: FakeClock;
  readonly identity: NodeIdentity;
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
  const identity = new NodeIdentity({ clock, logger }, {
    name,
    configuration: {
      proxy: { ...defaultConfiguration(), bindAddress: "0.0.0.0", ...proxy },
      mode: "userspace",
    },
    families,
    expected,
  });
  const controller = new AbortController();
  const ended = identity.run(controller.signal);
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

Deno.test("NodeIdentity says at once that no Node can have its name", () =>
  withIdentity({ name: "(none)" }, async ({ lines }) => {
    await settle();
    assertEquals(lines(), [
      "warn: No Node can have this name; set the Node's name with --hostname-override",
    ]);
  }));

Deno.test("NodeIdentity asks nothing of its name without a cluster", () =>
  withIdentity({ name: "(none)", expected: false }, async ({ lines }) => {
    await settle();
    assertEquals(lines(), ["info: Chose node addresses"]);
  }));

Deno.test("NodeIdentity logs its addresses and their source once", () =>
  withIdentity({}, async ({ clock, identity, lines, logger }) => {
    identity.see(node(["192.168.1.1"]));
    identity.see(node(["192.168.1.1"]));
    await clock.advance(60_000);
    assertEquals(lines(), ["info: Chose node addresses"]);
    assertEquals(logger.lines[0]?.fields, {
      primaryFamily: "IPv4",
      IPv4: "192.168.1.1 (Node)",
      IPv6: "::1 (none)",
    });
  }));

Deno.test("NodeIdentity continues with loopback after 30 s, and adopts addresses that appear later", () =>
  withIdentity({}, async ({ clock, identity, lines }) => {
    await clock.advance(29_999);
    assertEquals(lines(), []);
    await clock.advance(1);
    identity.see(node([]));
    assertEquals(lines(), [
      "warn: Continuing without addresses of the Node; they are used when they appear",
      "info: Chose node addresses",
    ]);
    identity.see(node(["192.168.1.1"]));
    assertEquals(lines()[2], "info: The addresses of the Node changed; node ports follow");
  }));

Deno.test("NodeIdentity waits for nothing if there is no cluster", () =>
  withIdentity({ expected: false }, async ({ clock, lines }) => {
    await clock.advance(0);
    assertEquals(lines(), ["info: Chose node addresses"]);
  }));

Deno.test("NodeIdentity reports changed addresses and the deletion", () =>
  withIdentity({}, async ({ identity, lines }) => {
    identity.see(node(["192.168.1.1"]));
    identity.see(node(["192.168.1.2"]));
    identity.lose();
    assertEquals(lines().slice(1), [
      "info: The addresses of the Node changed; node ports follow",
      "warn: The Node was deleted; continuing with its last known state",
    ]);
    assertEquals<readonly string[]>(identity.state.addresses, ["192.168.1.2"]);
    await Promise.resolve();
  }));

Deno.test("NodeIdentity reports podCIDRs that are missing for 5 more minutes, appear, or change", () =>
  withIdentity({ proxy: NODE_CIDR }, async ({ clock, identity, lines }) => {
    identity.see(node(["192.168.1.1"]));
    await clock.advance(299_999);
    assertEquals(lines().length, 1);
    await clock.advance(1);
    assertEquals(lines().length, 2);
    assertEquals(lines()[1]?.startsWith("error: Cannot recognize pods"), true);
    identity.see(node(["192.168.1.1"], ["10.1.0.0/24"]));
    identity.see(node(["192.168.1.1"], ["10.1.0.0/24"]));
    identity.see(node(["192.168.1.1"], ["10.2.0.0/24"]));
    assertEquals(lines().slice(2), [
      "info: Chose podCIDRs of the Node as the ranges of pods",
      "warn: The podCIDRs of the Node changed; the ranges of pods follow",
    ]);
  }));

Deno.test("NodeIdentity does not look at podCIDRs in another mode than NodeCIDR", () =>
  withIdentity({}, async ({ clock, identity, lines }) => {
    identity.see(node(["192.168.1.1"], ["10.1.0.0/24"]));
    identity.see(node(["192.168.1.1"], ["10.2.0.0/24"]));
    await clock.advance(600_000);
    assertEquals(lines(), ["info: Chose node addresses"]);
  }));

Deno.test("NodeIdentity ends the process for podCIDRs without a range of the node's family", () =>
  withIdentity({ proxy: NODE_CIDR }, async ({ identity }, ended) => {
    identity.see(node(["192.168.1.1"], ["fd00::/64"]));
    await assertRejects(() => ended, NodeMismatchError, "fd00::/64 has no IPv4 range");
  }));

Deno.test("NodeIdentity ends the process for a clusterCIDR of the family that does not run", () =>
  withIdentity(
    { proxy: { clusterCIDR: "fd00::/48" }, expected: false, families: ["IPv4"] },
    async (_, ended) => {
      await assertRejects(() => ended, NodeMismatchError, "clusterCIDR: fd00::/48 has no IPv4");
    },
  ));

Deno.test("NodeIdentity warns once of a setting that makes no sense", () =>
  withIdentity({ proxy: { nodePortAddresses: ["fd00::/64"] } }, async ({ identity, lines }) => {
    identity.see(node(["192.168.1.1"]));
    identity.see(node(["192.168.1.2"]));
    await Promise.resolve();
    assertEquals(lines().filter((line) => line === "warn: Setting is not plausible").length, 1);
  }));

Deno.test("NodeIdentity holds a configuration that is taken up later against the node", () =>
  withIdentity({}, async ({ identity, lines }, ended) => {
    const proxy = { ...defaultConfiguration(), bindAddress: "0.0.0.0" };
    const warnings = () => lines().filter((line) => line.startsWith("warn: Setting"));
    identity.onConfiguration({ ...proxy, nodePortAddresses: ["fd00::/64"] });
    assertEquals(warnings(), [], "nothing is known of the node yet");
    identity.see(node(["192.168.1.1"]));
    assertEquals(warnings().length, 1);
    identity.onConfiguration({ ...proxy, nodePortAddresses: ["10.0.0.0/8", "fd00::/64"] });
    assertEquals(warnings().length, 1);
    const clusterCIDR = "10.0.0.0/8,fd00::/48";
    identity.onConfiguration({ ...proxy, clusterCIDR, nodePortAddresses: ["10.0.0.0/8"] });
    assertEquals(warnings().length, 2);
    identity.see(node(["192.168.1.1"], ["fd00::/64"]));
    identity.onConfiguration({ ...proxy, detectLocalMode: "NodeCIDR" });
    await assertRejects(() => ended, NodeMismatchError, "spec.podCIDRs of the Node");
  }));

Deno.test("NodeIdentity reports once that the node's own family does not run, and continues", () =>
  withIdentity({ families: ["IPv4"] }, async ({ clock, identity, lines }) => {
    const isReported = () =>
      lines().filter((line) => line.startsWith("error: The node's own IP family"));
    await clock.advance(30_000);
    assertEquals(isReported(), [], "the family of the node is a guess");
    for (const last of [1, 2]) identity.see(node([`2001:db8::${last}`, "10.0.0.1"]));
    assertEquals(isReported().length, 1);
  }));

Deno.test("NodeIdentity ends nothing while it only guesses the family of the node", () =>
  withIdentity({ proxy: NODE_CIDR }, async ({ clock, identity }, ended) => {
    identity.see(node([], ["fd00::/64"]));
    await clock.advance(30_000);
    identity.see(node(["2001:db8::1"], ["fd00::/64"]));
    const first = await Promise.race([ended.then(() => "ended", String), clock.advance(1)]);
    assertEquals(first, undefined);
  }));
