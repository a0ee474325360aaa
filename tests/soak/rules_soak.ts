// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Runs a mode of rules for a long time with 50 changes a second, while another program damages its
 * rules, its tools are killed in the middle of a sync and it is killed itself. Fails if something is
 * left out of step with a fresh start, or if damage is reported when there was none.
 *
 * `deno task soak:rules [MINUTES] [--mode=nftables|iptables|legacy] [--seed=N]`
 */
import { assertEquals } from "@std/assert";
import { THIS_NODE } from "../support/builders/address_plan.ts";
import { testNode, testService } from "../support/builders/builders.ts";
import { rawObjects } from "../support/builders/raw_objects.ts";
import { chooseSeed, randomFrom } from "../support/builders/seeded_random.ts";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { eventually } from "../support/eventually.ts";
import { Churn } from "../support/stages/churn.ts";
import { servedServices } from "../support/stages/churn_stage.ts";
import { IPTABLES_PREFIXES, restoreRules } from "../support/stages/iptables_tools.ts";
import { Namespace } from "../support/stages/netns.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import { isSettled, RelayProcess, servicesOf } from "../support/stages/relay_process.ts";
import { IPTABLES_MODES, NFTABLES_MODE } from "../support/stages/rule_modes.ts";

const MODES = {
  nftables: NFTABLES_MODE,
  iptables: IPTABLES_MODES.nft,
  legacy: IPTABLES_MODES.legacy,
};
const CHANGES_PER_SECOND = 50;
const DAMAGE_EVERY_MS = 7_000;
const TOOL_KILL_EVERY_MS = 11_000;
const RESTART_EVERY_MS = 300_000;
/** Changes at the end without damage, in which nothing may be reported. */
const QUIET_CHANGES = 3_000;
const REPAIR_DEADLINE_MS = 600_000;

const minutes = Number(Deno.args.find((arg) => !arg.startsWith("--")) ?? 5);
if (!(minutes > 0)) {
  throw new Error(`Cannot run for ${Deno.args[0]} minutes: give a number above 0`);
}
const modeName = valueOf("--mode=") ?? "nftables";
const mode = MODES[modeName as keyof typeof MODES];
if (!mode) throw new Error(`Unknown --mode=${modeName}: expected ${Object.keys(MODES).join(", ")}`);
const seed = Number(valueOf("--seed=") ?? chooseSeed());
const random = randomFrom(seed);
const counts = { changes: 0, damages: 0, refusedDamages: 0, killedTools: 0, restarts: 0 };
console.log(`${mode.name}, ${minutes} minutes, seed ${seed}`);
Deno.exit(await soak() ? 0 : 1);

function valueOf(flag: string): string | undefined {
  return Deno.args.find((arg) => arg.startsWith(flag))?.slice(flag.length);
}

async function soak(): Promise<boolean> {
  const folder = await Deno.makeTempDir();
  try {
    await using node = await Namespace.create("soak");
    await mode.prepare(node);
    const api = await ApiProcess.start(node, `${folder}/kubeconfig`);
    await api.write(rawObjects("Node", testNode()));
    const args = [
      `--kubeconfig=${api.kubeconfig}`,
      `--hostname-override=${THIS_NODE}`,
      "--iptables-min-sync-period=50ms",
      ...mode.args,
    ];
    const start = () => RelayProcess.start(node, { folder, args });
    let relay = start();
    await relay.settled();
    const churn = new Churn(random);
    const change = async () => {
      const { objects, deleted } = churn.next();
      await api.write(objects, { deleted });
      counts.changes++;
    };
    const began = performance.now();
    const end = began + minutes * 60_000;
    const next = {
      damage: DAMAGE_EVERY_MS,
      kill: TOOL_KILL_EVERY_MS,
      restart: RESTART_EVERY_MS,
      line: 60_000,
    };
    for (let made = 0; performance.now() < end; made++) {
      await until(began + made * 1000 / CHANGES_PER_SECOND);
      await change();
      const now = performance.now() - began;
      if (now > next.damage) {
        next.damage += DAMAGE_EVERY_MS;
        await damage(node);
      }
      if (now > next.kill) {
        next.kill += TOOL_KILL_EVERY_MS;
        await killATool(node);
      }
      if (now > next.restart) {
        next.restart += RESTART_EVERY_MS;
        await relay.kill();
        counts.restarts++;
        relay = start();
      }
      if (now > next.line) {
        next.line += 60_000;
        console.log(`${Math.round(now / 60_000)} min: ${JSON.stringify(counts)}`);
      }
    }
    await allSeen(api, relay, "172.30.2.1");
    await eventually("every damage is repaired", () => isInStep(folder), {
      deadlineMs: REPAIR_DEADLINE_MS,
    });
    const before = await driftFound(node);
    const quietFrom = performance.now();
    for (let made = 0; made < QUIET_CHANGES; made++) {
      await until(quietFrom + made * 1000 / CHANGES_PER_SECOND);
      await change();
    }
    const status = await allSeen(api, relay, "172.30.2.2");
    // The watch for damage looks every second.
    await until(performance.now() + 30_000);
    const alarms = await driftFound(node) - before;
    console.log(`drift reported in ${QUIET_CHANGES} changes without damage: ${alarms}`);

    const found = { services: servedServices(status), rules: await mode.state(node) };
    await relay.kill();
    await RelayProcess.run(node, { folder, args: [...args, "--cleanup"] });
    relay = start();
    const fresh = {
      services: servedServices(await relay.settled()),
      rules: await mode.state(node),
    };
    const difference = differenceOf(found, fresh);
    if (difference) console.log(`${difference.slice(0, 20_000)}\n${relay.log}`);
    console.log(
      `${difference ? "DIFFERENT from" : "equal to"} a fresh start; ${JSON.stringify(counts)}`,
    );
    return !difference && alarms === 0 && counts.damages > counts.refusedDamages;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function differenceOf(found: unknown, fresh: unknown): string | undefined {
  try {
    assertEquals(found, fresh);
    return undefined;
  } catch (error) {
    return `${error}`;
  }
}

/** Waits until the last change is in effect. */
async function allSeen(api: ApiProcess, relay: RelayProcess, clusterIP: string) {
  const name = `mark-${clusterIP.replaceAll(".", "-")}`;
  await api.write(rawObjects("Service", testService(name, { clusterIP })));
  return await relay.until(
    "kube-relay has seen the last change",
    (status) =>
      isSettled(status) && servicesOf(status).some((service) => service.name === `ns1/${name}`),
  );
}

async function isInStep(folder: string): Promise<boolean> {
  const args = ["task", "--quiet", "start", "diff", "--control-socket", `${folder}/control.sock`];
  const { code } = await new Deno.Command(Deno.execPath(), { args, stderr: "null", stdout: "null" })
    .output();
  return code === 0;
}

async function driftFound(node: Namespace): Promise<number> {
  const text = await node.output("curl", ["-s", "http://127.0.0.1:10249/metrics"]);
  return [...text.matchAll(/^kube_relay_drift_found_total\{.*\} (\d+)/gm)]
    .reduce((sum, [, count]) => sum + Number(count), 0);
}

/** Ends one of the tools that kube-relay runs now, as the kernel does when memory ends. */
async function killATool(node: Namespace): Promise<void> {
  const pids = (await node.output("ip", ["netns", "pids", node.name])).split("\n").filter(Boolean);
  const { stdout } = await node.run("ps", ["-o", "pid=,comm=", "-p", pids.join(",")]);
  const tools = stdout.split("\n").filter((line) => /nft|iptables|ip6tables|xtables/.test(line));
  const victim = tools.length > 0 && pick(tools).trim().split(" ")[0];
  if (!victim) return;
  const { code } = await node.run("kill", ["-9", victim]);
  if (code === 0) counts.killedTools++;
}

/** Changes one thing of kube-relay's as a careless administrator would. */
async function damage(node: Namespace): Promise<void> {
  counts.damages++;
  try {
    await (modeName === "nftables" ? damageNftables(node) : damageIptables(node));
  } catch {
    // It was changed by kube-relay between the look and the damage.
    counts.refusedDamages++;
  }
}

/** A rule, map or set in the JSON of nft. */
interface NftObject {
  readonly chain?: string;
  readonly handle?: number;
  readonly name?: string;
  readonly elem?: readonly unknown[];
}

async function damageNftables(node: Namespace): Promise<void> {
  const family = pick(["ip", "ip6"]);
  const table = `${family} kube-relay`;
  if (random() < 0.05) return await loadNftables(node, `delete table ${table}\n`);
  const { nftables } = JSON.parse(
    await node.output("nft", ["-j", "-a", "list", "table", ...table.split(" ")]),
  );
  const all = nftables as readonly Readonly<Record<string, NftObject>>[];
  const holders = all.flatMap((object) =>
    ["map", "set"].flatMap((kind) => object[kind]?.elem?.length ? [{ kind, ...object[kind] }] : [])
  );
  const { chain, handle } = pick(all.flatMap(({ rule }) => rule ? [rule] : []));
  const text = pick([
    `flush chain ${table} ${chain}`,
    `delete rule ${table} ${chain} handle ${handle}`,
    `insert rule ${table} ${chain} counter`,
    `add rule ${table} ${chain} ip${family === "ip" ? "" : "6"} daddr ${
      family === "ip" ? "192.0.2.1" : "2001:db8::1"
    } drop`,
    ...holders.length === 0 ? [] : [`flush ${pick(holders).kind} ${table} ${pick(holders).name}`],
  ]);
  await loadNftables(node, `${text}\n`);
}

async function damageIptables(node: Namespace): Promise<void> {
  const variant = modeName === "legacy" ? "legacy" : "nft";
  const prefix = pick(IPTABLES_PREFIXES);
  const saved = await node.output(`${prefix}-${variant}-save`, []);
  const table = pick(["nat", "filter"]);
  const part = saved.split(`*${table}`)[1]?.split("COMMIT")[0] ?? "";
  const rules = part.split("\n").filter((line) =>
    /^-A KUBE-/.test(line) && !line.includes("KUBELET")
  );
  const rule = pick(rules);
  const chain = rule.split(" ")[1];
  const line = pick([`-F ${chain}`, rule.replace("-A", "-D"), `-I ${chain} -j RETURN`]);
  await restoreRules(node, `${prefix}-${variant}`, [`*${table}`, line, "COMMIT", ""].join("\n"));
}

function pick<T>(all: readonly T[]): T {
  const one = all[Math.floor(random() * all.length)];
  if (one === undefined) throw new Error("Cannot choose from nothing");
  return one;
}

async function until(time: number): Promise<void> {
  const left = time - performance.now();
  if (left > 0) await new Promise((resolve) => setTimeout(resolve, left));
}
