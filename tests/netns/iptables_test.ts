/**
 * The iptables mode as a process, with real rules and real packets, in both variants.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ProbeClient } from "../support/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { type Namespace, netnsRequirements } from "../support/netns.ts";
import type { RelayProcess } from "../support/relay_process.ts";
import { RelayScene } from "../support/relay_scene.ts";
import { isMissing, program } from "../support/requirement.ts";
import { VIP, webServices, webSlices } from "../support/web_service.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";

type Variant = "nft" | "legacy";

const VARIANTS: readonly Variant[] = ["nft", "legacy"];
const PREFIXES = ["iptables", "ip6tables"] as const;
const TABLES = ["mangle", "filter", "nat"] as const;

const ignore = isMissing("iptables mode with real packets", [
  ...netnsRequirements(),
  ...VARIANTS.flatMap((variant) => PREFIXES.map((prefix) => program(`${prefix}-${variant}`))),
]);

/** One rule of somebody else's in each built-in chain. */
const FOREIGN = `*mangle
-A PREROUTING -m mark --mark 0x77 -j ACCEPT
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A FORWARD -m mark --mark 0x77 -j ACCEPT
-A OUTPUT -m mark --mark 0x77 -j ACCEPT
-A POSTROUTING -m mark --mark 0x77 -j ACCEPT
COMMIT
*filter
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A FORWARD -m mark --mark 0x77 -j ACCEPT
-A OUTPUT -m mark --mark 0x77 -j ACCEPT
COMMIT
*nat
-A PREROUTING -m mark --mark 0x77 -j ACCEPT
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A OUTPUT -m mark --mark 0x77 -j ACCEPT
-A POSTROUTING -m mark --mark 0x77 -j ACCEPT
COMMIT
`;

/** What a kubelet leaves: an old one has a rule in its chain that nobody else knows. */
const KUBELET = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-I INPUT -j KUBE-FIREWALL
-I OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
`;

/** A node with an iptables that others use already. */
class IptablesScene implements AsyncDisposable {
  readonly scene: RelayScene;
  readonly #variant: Variant;

  private constructor(scene: RelayScene, variant: Variant) {
    this.scene = scene;
    this.#variant = variant;
  }

  static async create(variant: Variant): Promise<IptablesScene> {
    const stage = new IptablesScene(await RelayScene.create(), variant);
    await stage.scene.write(webServices(), webSlices("a1"));
    for (const prefix of PREFIXES) await stage.restore(prefix, FOREIGN);
    return stage;
  }

  get node(): Namespace {
    return this.scene.cluster.node;
  }

  /** Starts kube-relay in this mode. */
  start(...args: readonly string[]): RelayProcess {
    return this.scene.start(["--mode=iptables", "--iptables-sync-period=1s", ...args]);
  }

  async restore(prefix: string, stdin: string): Promise<void> {
    const tool = `${prefix}-${this.#variant}-restore`;
    const args = ["netns", "exec", this.node.name, tool, "-w", "5", "--noflush"];
    const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
    assertEquals(code, 0, stderr);
  }

  /** All rules of both families, without counters and comments. */
  async rules(): Promise<string> {
    const texts = [];
    for (const prefix of PREFIXES) {
      texts.push(await this.node.output(`${prefix}-${this.#variant}-save`, []));
    }
    return texts.join("").split("\n").filter((line) => !line.startsWith("#")).join("\n")
      .replaceAll(/\[\d+:\d+\]/g, "[0:0]");
  }

  /** Takes all rules and chains of a table away, as a firewall script would. */
  async flush(table: string): Promise<void> {
    for (const flag of ["-F", "-X"]) {
      await this.node.output(`iptables-${this.#variant}`, ["-w", "-t", table, flag]);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.scene[Symbol.asyncDispose]();
  }
}

for (const variant of VARIANTS) {
  Deno.test({
    name: `iptables mode (${variant}) serves, restarts without a write, and cleans up`,
    ignore,
    async fn() {
      await using stage = await IptablesScene.create(variant);
      const before = await stage.rules();
      const client = ProbeClient.start(stage.scene.cluster.client);
      const first = stage.start();
      const { families } = await first.settled();
      assertEquals(families.map(({ mode }) => mode), ["iptables", "iptables"]);
      assertEquals(await client.who(VIP), "pod-a1");
      const served = await stage.rules();
      for (const line of before.split("\n")) assertStringIncludes(served, line);
      await first.stop();
      assertEquals(await client.who(VIP), "pod-a1", "rules stay");

      const second = stage.start();
      const report = await second.settled();
      for (const { lastSync } of report.families) {
        assertEquals(lastSync?.operations, {}, second.log);
      }
      assertEquals(await stage.rules(), served);
      await second.stop();

      await stage.scene.cleanup();
      assertEquals(await stage.rules(), before);
      assert(await client.who(VIP) !== "pod-a1");
    },
  });

  Deno.test({
    name: `iptables mode (${variant}) leaves what the kubelet has as it is`,
    ignore,
    async fn() {
      await using stage = await IptablesScene.create(variant);
      await stage.restore("iptables", KUBELET);
      const before = await stage.rules();
      const relay = stage.start();
      await relay.settled();
      const served = await stage.rules();
      for (const line of before.split("\n")) assertStringIncludes(served, line);
      await relay.stop();
      await stage.scene.cleanup();
      assertEquals(await stage.rules(), before);
    },
  });

  Deno.test({
    name: `iptables mode (${variant}) repairs each table that is flushed alone`,
    ignore,
    async fn(t) {
      await using stage = await IptablesScene.create(variant);
      const relay = stage.start();
      await relay.settled();
      const before = await stage.rules();
      for (const table of TABLES) {
        await t.step(table, async () => {
          await stage.flush(table);
          const ours = before.split("\n").filter((line) => /KUBE-(?!FIREWALL|IPTABLES)/.test(line));
          await eventually("our rules are back", async () => {
            const now = await stage.rules();
            return ours.every((line) => now.includes(line));
          }, { deadlineMs: 15_000 });
        });
      }
      assertStringIncludes(relay.log, "Rules were missing or changed; they are repaired");
      await relay.stop();
    },
  });
}
