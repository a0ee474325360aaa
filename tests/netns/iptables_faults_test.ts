/**
 * Tests the iptables mode with every change that other programs make to its rules, with the
 * kernel's own answers, in both variants. The expected state is that of a fresh start on an
 * untouched node.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { testService } from "../support/builders/builders.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { isSettled, type RelayProcess, servicesOf } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { isMissing, program, testUnless } from "../support/requirement.ts";
import { VIP, webServices, webSlices } from "../support/builders/web_service.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";

const VARIANTS = ["nft", "legacy"] as const;
type Variant = typeof VARIANTS[number];
const TABLES = ["mangle", "filter", "nat"] as const;

const ignore = isMissing("faults of iptables mode", [
  ...netnsRequirements(),
  ...VARIANTS.map((variant) => program(`iptables-${variant}`)),
]);
const test = testUnless(ignore);

const MARK = "-m mark --mark 0x77 -j ACCEPT";
/** As a CNI plugin has one: it keeps connection tracking on when our rules go (docs/going_back.md). */
const MASQUERADE = "-A POSTROUTING -m mark --mark 0x77 -j MASQUERADE";
/** One rule of another program in each built-in chain, and one in a chain of its own. */
const FOREIGN = [
  ["*mangle", ...rulesOf("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")],
  ["*filter", ":OTHER-CHAIN - [0:0]", ...rulesOf("INPUT", "FORWARD", "OUTPUT", "OTHER-CHAIN")],
  ["*nat", ...rulesOf("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"), MASQUERADE],
].flatMap((lines) => [...lines, "COMMIT", ""]).join("\n");

function rulesOf(...chains: readonly string[]): string[] {
  return chains.map((chain) => `-A ${chain} ${MARK}`);
}

/** A node with foreign rules, on which kube-relay runs in iptables mode. */
class FaultScene implements AsyncDisposable {
  readonly #variant: Variant;
  private constructor(readonly scene: RelayScene, variant: Variant) {
    this.#variant = variant;
  }
  static async create(variant: Variant): Promise<FaultScene> {
    const stage = new FaultScene(await RelayScene.create(), variant);
    await stage.scene.write(webServices(), webSlices("a1"));
    await stage.restore(FOREIGN);
    return stage;
  }
  get node(): Namespace {
    return this.scene.cluster.node;
  }
  start(...args: readonly string[]): RelayProcess {
    return this.scene.start(["--mode=iptables", "--iptables-sync-period=1s", ...args]);
  }
  /** Gives text to `iptables-restore --noflush`. */
  async restore(stdin: string): Promise<void> {
    const tool = `iptables-${this.#variant}-restore`;
    const args = ["netns", "exec", this.node.name, tool, "-w", "5", "--noflush"];
    const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
    assertEquals(code, 0, stderr);
  }
  async iptables(...args: readonly string[]): Promise<void> {
    await this.node.output(`iptables-${this.#variant}`, ["-w", "5", ...args]);
  }
  /** A table as it is, chains sorted: new ones come where the tool likes. */
  async table(table: string): Promise<string> {
    const text = await this.node.output(`iptables-${this.#variant}-save`, ["-t", table]);
    const lines = text.split("\n").filter((line) => !line.startsWith("#"))
      .map((line) => line.replace(/\[\d+:\d+\]/, "[0:0]"));
    const byChain = (a: string, b: string) =>
      chainOf(a) < chainOf(b) ? -1 : chainOf(a) > chainOf(b) ? 1 : 0;
    return lines.toSorted(byChain).join("\n");
  }
  async rules(): Promise<string> {
    const texts = [];
    for (const table of TABLES) texts.push(await this.table(table));
    return texts.join("\n");
  }
  /** Foreign rules, in the order of their chains. */
  async foreign(): Promise<readonly string[]> {
    return (await this.rules()).split("\n").filter((line) => line.includes("0x77"));
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.scene[Symbol.asyncDispose]();
  }
}

function chainOf(line: string): string {
  return /^(?:-A |:)(\S+)/.exec(line)?.[1] ?? "";
}

/**
 * The ways in which other programs remove rules: with their chains, only the rules, or by loading a
 * table.
 */
const FLUSHES: Readonly<Record<string, (stage: FaultScene, table: string) => Promise<void>>> = {
  "-F and -X": async (stage, table) => {
    await stage.iptables("-t", table, "-F");
    await stage.iptables("-t", table, "-X");
  },
  "-F alone": (stage, table) => stage.iptables("-t", table, "-F"),
};

for (const variant of VARIANTS) {
  test(`iptables faults (${variant}): a table that is flushed alone is whole again in seconds`, async (t) => {
    await using stage = await FaultScene.create(variant);
    const relay = stage.start();
    await relay.settled();
    const client = ProbeClient.start(stage.scene.cluster.client);
    const before = new Map<string, string>();
    for (const table of TABLES) before.set(table, await stage.table(table));
    for (const [how, flush] of Object.entries(FLUSHES)) {
      for (const table of TABLES) {
        await t.step(`${table} by ${how}`, async () => {
          await flush(stage, table);
          // kube-relay does not restore foreign rules that the flush removed.
          const isOthers = (line: string) => /0x77|OTHER-CHAIN/.test(line);
          const ours = before.get(table)!.split("\n").filter((line) => !isOthers(line)).join(
            "\n",
          );
          await eventually("our rules are back", async () => {
            const now = await stage.table(table);
            return now.split("\n").filter((line) => !isOthers(line)).join("\n") === ours;
          });
          assertEquals(await client.who(VIP), "pod-a1");
        });
      }
    }
    await relay.logged("Another program flushed a table of iptables; repairing");
    await relay.stop();
  });
  test(`iptables faults (${variant}): a chain with foreign references is emptied, and stays`, async () => {
    await using stage = await FaultScene.create(variant);
    // So many that there are chains below the entry points.
    const many = Array.from(
      { length: 60 },
      (_, index) =>
        testService(`many-${index}`, { clusterIP: `172.30.${index % 4}.${100 + index}` }),
    );
    await stage.scene.write(many, []);
    const relay = stage.start();
    await relay.settled();
    const [, chain] = /^:(KUBE-VIP-\S+) /m.exec(await stage.table("filter")) ?? [];
    assert(chain !== undefined);
    await stage.restore(`*filter\n-A OTHER-CHAIN -s 192.0.2.9/32 -j ${chain}\nCOMMIT\n`);
    await stage.scene.write(webServices(), webSlices("a1"));
    await relay.until(
      "the others are gone",
      (status) =>
        isSettled(status) && servicesOf(status).every(({ name }) => !name.includes("many")),
    );
    const client = ProbeClient.start(stage.scene.cluster.client);
    assertEquals(await client.who(VIP), "pod-a1");
    const lines = (await stage.table("filter")).split("\n");
    assertEquals(lines.filter((line) => line.includes(chain)), [
      `:${chain} - [0:0]`,
      `-A OTHER-CHAIN -s 192.0.2.9/32 -j ${chain}`,
    ]);
    assertEquals(lines.filter((line) => line.startsWith(":KUBE-VIP-")).length, 1);
    await relay.stop();
  });
}

Deno.test({
  name:
    "iptables faults (legacy): another program holds the lock for seconds; the sync comes after it",
  ignore: ignore || isMissing("the lock of iptables-legacy", [program("flock")]),
  async fn() {
    await using stage = await FaultScene.create("legacy");
    const { scene, node } = stage;
    // A separate lock: that of the machine is shared by all namespaces.
    const lock = `${scene.folder}/xtables.lock`;
    const relay = scene.start(["--mode=iptables"], { by: ["env", `XTABLES_LOCKFILE=${lock}`] });
    await relay.settled();
    const client = ProbeClient.start(scene.cluster.client);
    assertEquals(await client.who(VIP), "pod-a1");
    const holder = node.start("flock", [lock, "sh", "-c", "echo held; exec cat"]);
    assertEquals(await holder.nextLine(), "held");
    await scene.write(webServices(), webSlices("b1"));
    await relay.logged("another program held the lock of iptables");
    const { families } = await relay.status();
    assertStringIncludes(JSON.stringify(families), "another program held the lock of iptables");
    assertEquals(await client.who(VIP), "pod-a1");
    await holder.kill();
    await eventually("the change is written", async () => await client.who(VIP) === "pod-b1");
    await relay.stop();
  },
});
