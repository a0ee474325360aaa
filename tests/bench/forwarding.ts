// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Measures the cost of forwarding: kube-relay with each feature off and on, a bare loop in Deno, and
 * HAProxy for TCP or nginx for UDP, all in one run on one machine. Compare CPU per unit of work; rates
 * are noisy. For a comparison of two commits, run it at both.
 *
 * `deno task bench:forwarding [--quick] [--rounds=N] [--only=START] [--work=START]
 * [--json FILE]`; `--only` and `--work` select the forwarders, besides kube-relay, and workloads whose
 * names have this prefix. `KUBE_RELAY=dist/kube-relay` tests the built executable. Needs haproxy, nginx
 * with its stream module, wrk, and root for policies: then it runs in a network namespace of its own,
 * so that no rule applies to the host.
 */
import Table from "cli-table3";
import { Namespace } from "../support/stages/netns.ts";
import { type Forwarder, type ForwarderKind, FORWARDERS } from "./forwarders.ts";
import { cpuSeconds, residentMiB, threadSeconds } from "./process_usage.ts";
import { showSpread, spreadOf } from "./statistics.ts";
import { type DoneWork, type Workload, WORKLOADS } from "./workloads.ts";

const INSIDE = "--inside-namespace";
const quick = Deno.args.includes("--quick");
const only = valueOf("--only=");
const onlyWork = valueOf("--work=");
const ROUNDS = Number(valueOf("--rounds=") || (quick ? 1 : 3));
const SECONDS = quick ? 0.5 : 1;
/** Before the first measurement, so that code is compiled and buffers exist. */
const WARM_UP_SECONDS = 0.5;
/** The one that all others are compared with. */
const RELAY = "kube-relay";

/** One measured run: work done, and CPU seconds of the forwarder. */
interface Sample extends DoneWork {
  readonly cpuSeconds: number;
  /** Of the busiest thread: it bounds the rate where there are cores enough. */
  readonly busiestSeconds: number;
  readonly residentMiB: number;
}

/** A forwarder that is ready, with its measurements so far. */
interface Runner {
  readonly kind: ForwarderKind;
  readonly forwarder: Forwarder;
  readonly samples: Sample[];
}

if (Deno.uid() === 0 && !Deno.args.includes(INSIDE)) Deno.exit(await runInNamespace());
if (Deno.uid() !== 0) console.log("No figures of policies: they need root");
const results: Record<string, Record<string, readonly Sample[]>> = {};
for (
  const workload of WORKLOADS.filter(({ name, needsRoot }) =>
    name.startsWith(onlyWork) && (Deno.uid() === 0 || !needsRoot)
  )
) {
  results[workload.name] = await measure(workload);
  console.log(report(workload, results[workload.name]!));
}
const jsonAt = Deno.args.indexOf("--json");
if (jsonAt >= 0) await Deno.writeTextFile(Deno.args[jsonAt + 1]!, JSON.stringify(results, null, 1));

/** The rest of the argument with this prefix; empty if there is none, which is a prefix of every name. */
function valueOf(flag: string): string {
  return Deno.args.find((arg) => arg.startsWith(flag))?.slice(flag.length) ?? "";
}

/** Runs itself where it may write rules. Returns the exit code. */
async function runInNamespace(): Promise<number> {
  await using namespace = await Namespace.create("bench");
  const rights = ["net", "read", "write", "env", "sys", "run"].map((name) => `--allow-${name}`);
  const line = [Deno.execPath(), "run", "--no-prompt", "--no-check", "--unstable-net", ...rights];
  const child = new Deno.Command("ip", {
    args: ["netns", "exec", namespace.name, ...line, import.meta.url, INSIDE, ...Deno.args],
  }).spawn();
  return (await child.status).code;
}

function kindsFor({ protocol }: Workload): readonly ForwarderKind[] {
  return FORWARDERS.filter(({ name, protocols, feature }) =>
    protocols.includes(protocol) &&
    (name === RELAY || name.startsWith(only)) &&
    (Deno.uid() === 0 || !feature?.needsRoot)
  );
}

/** Each round takes every forwarder in turn, so that a slow minute of the machine hits all of them. */
async function measure(workload: Workload): Promise<Record<string, readonly Sample[]>> {
  const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
  await using stack = new globalThis.AsyncDisposableStack();
  stack.defer(() => Deno.remove(folder, { recursive: true }));
  const server = stack.use(await workload.startServer(folder));
  const runners: Runner[] = [];
  for (const [index, kind] of kindsFor(workload).entries()) {
    const task = {
      ...{ protocol: workload.protocol, clusterIp: `127.96.255.${index + 1}` },
      ...{ server: server.hostname ?? "127.0.0.1", serverPort: server.port },
      ...{ proxyPort: server.proxyPort ?? server.port },
      folder: `${folder}/${index}`,
    };
    await Deno.mkdir(task.folder);
    const forwarder = stack.use(await kind.start(task));
    await workload.run(forwarder, WARM_UP_SECONDS);
    runners.push({ kind, forwarder, samples: [] });
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (const { forwarder, samples } of runners) {
      samples.push(await takeSample(workload, forwarder));
    }
  }
  return Object.fromEntries(runners.map(({ kind, samples }) => [kind.name, samples]));
}

async function takeSample(workload: Workload, forwarder: Forwarder): Promise<Sample> {
  const { pid } = forwarder;
  const before = await cpuSeconds(pid);
  const threadsBefore = await threadSeconds(pid);
  const work = await workload.run(forwarder, SECONDS);
  const used = await cpuSeconds(pid) - before;
  const threads = [...await threadSeconds(pid)].map(([id, seconds]) =>
    seconds - (threadsBefore.get(id) ?? 0)
  );
  return {
    ...work,
    cpuSeconds: used,
    busiestSeconds: Math.max(...threads),
    residentMiB: (await residentMiB(pid)).peak,
  };
}

function report(workload: Workload, samples: Readonly<Record<string, readonly Sample[]>>): string {
  const table = new Table({
    head: [
      ...[
        workload.name,
        workload.unit,
        workload.cpuUnit,
        "MiB",
        "p99, ms",
        "busiest thread",
        "CPU compared",
      ],
    ],
    style: { head: [], border: [] },
  });
  const cpuOf = (sample: Sample) => sample.cpuSeconds / sample.units * workload.cpuScale;
  const relay = samples[RELAY]!.map(cpuOf);
  const capacityOf = ({ units, busiestSeconds }: Sample) => units / busiestSeconds;
  const capacities = samples[RELAY]!.map(capacityOf);
  for (const [name, all] of Object.entries(samples)) {
    const rate = spreadOf(all.map(({ units, seconds }) => units / seconds * workload.rateScale));
    const digits = workload.cpuScale === 1e9 ? 3 : 1;
    const ratios = all.map((sample, round) => cpuOf(sample) / relay[round]!);
    table.push([
      name,
      showSpread(rate, workload.rateScale === 1 ? 0 : 1),
      showSpread(spreadOf(all.map(cpuOf)), digits),
      spreadOf(all.map(({ residentMiB }) => residentMiB)).max.toFixed(0),
      p99Text(all),
      busiestText(all, all.map((each, round) => capacityOf(each) / capacities[round]!)),
      name === RELAY ? "" : comparison(name, { ratios, aim: workload.aims[name] }),
    ]);
  }
  return table.toString();
}

function p99Text(samples: readonly Sample[]): string {
  const known = samples.flatMap(({ p99Ms }) => p99Ms ?? []);
  return known.length === 0 ? "" : showSpread(spreadOf(known), 1);
}

/** The share of the busiest thread, and the rate that it permits compared with that of kube-relay. */
function busiestText(samples: readonly Sample[], capacities: readonly number[]): string {
  const shares = samples.map(({ busiestSeconds, cpuSeconds }) => 100 * busiestSeconds / cpuSeconds);
  return `${showSpread(spreadOf(shares), 0)} %, permits ${showSpread(spreadOf(capacities))}x`;
}

/** For a feature what it costs, for another program what kube-relay costs compared with it. */
function comparison(
  name: string,
  { ratios, aim }: { readonly ratios: readonly number[]; readonly aim: number | undefined },
): string {
  const aimed = aim === undefined ? "" : ` (aim ${aim})`;
  if (name.startsWith(RELAY)) {
    return `${showSpread(spreadOf(ratios))}x of kube-relay without it${aimed}`;
  }
  const inverse = showSpread(spreadOf(ratios.map((ratio) => 1 / ratio)));
  return `kube-relay ${inverse}x of it${aimed}`;
}
