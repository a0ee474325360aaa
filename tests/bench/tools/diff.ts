// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Measures `kube-relay diff` on a real kernel with 10,000 Services of 2 endpoints each, in a
 * network namespace: without differences, with damage, during changes, and for other objects.
 *
 * `deno task bench:diff [--services 10000] [--runs 3]`; `KUBE_RELAY=dist/kube-relay` takes the
 * built executable. Most of the time is spent in the tool of the mode, which prints the whole
 * content of the kernel. The time of the tool alone is printed too, and the benchmark fails by the
 * ratio of both.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import Table from "cli-table3";
import { Namespace } from "../../support/stages/netns.ts";
import { RelayProcess } from "../../support/stages/relay_process.ts";
import { relayCommand } from "../forwarders.ts";
import { type Gate, gateRow, isFailure } from "../gates.ts";
import { writeManifests } from "./manifests.ts";

const flags = parseArgs(Deno.args, { string: ["services", "runs"] });
const SERVICES = Number(flags.services ?? 10_000);
const RUNS = Number(flags.runs ?? 3);

/** A mode, and what its tool prints the kernel by. */
interface BenchMode {
  readonly mode: "iptables" | "nftables";
  readonly print: readonly [program: string, ...args: string[]];
  /** Commands that damage something. */
  readonly damage: readonly (readonly [program: string, ...args: string[]])[];
  /**
   * Compared with `version` and the tool together, which take half a second to one and a half. At
   * least a tenth above the worst measurement on a busy machine, besides the slack of all gates.
   */
  readonly atMost: Readonly<Record<"look" | "whatIf" | "repair", number>>;
}

const MODES: readonly BenchMode[] = [
  {
    mode: "nftables",
    print: ["nft", "list", "table", "ip", "kube-relay"],
    damage: [["nft", "flush", "chain", "ip", "kube-relay", "nat-output"]],
    atMost: { look: 1.3, whatIf: 2.2, repair: 5 },
  },
  {
    mode: "iptables",
    print: ["iptables-nft-save"],
    damage: [["iptables-nft", "-w", "-t", "nat", "-F", "KUBE-MARK-MASQ"]],
    atMost: { look: 2.2, whatIf: 3.6, repair: 7.5 },
  },
];

const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
try {
  await writeManifests(`${folder}/manifests`, SERVICES);
  const gates: Gate[] = [];
  for (const mode of MODES) gates.push(...await measureMode(mode));
  const table = new Table({ head: [`${SERVICES} Services`, "best", "at most", ""] });
  table.push(...gates.map(gateRow));
  console.log(table.toString());
  if (gates.some(isFailure)) Deno.exitCode = 1;
} finally {
  await Deno.remove(folder, { recursive: true });
}

async function measureMode({ mode, print, damage, atMost }: BenchMode): Promise<readonly Gate[]> {
  await using node = await Namespace.create("bench");
  const manifests = `--manifests=${folder}/manifests`;
  await using relay = RelayProcess.start(node, {
    folder,
    // The process must not repair the damage itself.
    args: [`--mode=${mode}`, manifests, "--iptables-sync-period=1h"],
  });
  await relay.settled();
  const best = async (
    line: readonly string[],
    { code: wanted = 0, before = () => Promise.resolve() }: {
      readonly code?: number;
      readonly before?: () => Promise<void>;
    } = {},
  ) => {
    const times: number[] = [];
    for (let run = 0; run < RUNS; run++) {
      await before();
      const started = performance.now();
      const { code, stderr, stdout } = await node.run(line[0] ?? "", line.slice(1));
      times.push(performance.now() - started);
      if (code !== wanted) throw new Error(`${line.join(" ")}: ${code}: ${stderr}${stdout}`);
    }
    return Math.min(...times);
  };
  const { program, args } = relayCommand();
  const tool = (...line: string[]) => [
    program,
    ...args,
    ...line,
    `--control-socket=${folder}/control.sock`,
  ];
  const hurt = async () => {
    for (const [command, ...rest] of damage) await node.output(command, rest);
  };
  const alone = await best([program, ...args, "version"]) + await best(print);
  console.log(`${mode}: 'kube-relay version' and '${print.join(" ")}' take ${alone.toFixed(0)} ms`);
  const diff = (...flags: readonly string[]) => tool("diff", "--family=ipv4", ...flags);
  const cases: readonly (readonly [string, keyof BenchMode["atMost"], number])[] = [
    ["diff, as planned", "look", await best(diff())],
    ["diff, with damage", "look", await best(diff(), { code: 3, before: hurt })],
    ["diff --repair", "repair", await best(diff("--repair"), { before: hurt })],
    ["diff --manifests", "whatIf", await best(diff(manifests))],
  ];
  return cases.map(([name, kind, ms]) => ({
    name: `${mode}: ${name}: ${ms.toFixed(0)} ms`,
    value: ms / alone,
    atMost: atMost[kind],
  }));
}
