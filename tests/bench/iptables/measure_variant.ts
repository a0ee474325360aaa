/**
 * Everything that is measured with one of the two programs called `iptables`.
 *
 * @module
 */
import { type Spread, spreadOf } from "../statistics.ts";
import type { ToolRun } from "../agent_protocol.ts";
import { BenchNamespace } from "../bench_namespace.ts";
import { iptablesTool, type IptablesVariant } from "./iptables_tool.ts";
import { BenchRules, type RuleWrite } from "./bench_rules.ts";
import { type ConnectFigures, measureConnects } from "../measure_connects.ts";
import { kubeProxyFull, kubeProxyPartial } from "./kube_proxy_layout.ts";

/** The extent of the measurement. */
export interface BenchForm {
  /** Numbers of Services, ascending. The last but one and the last are compared. */
  readonly sizes: readonly number[];
  /** Sizes at which kube-proxy's layout is loaded as well. */
  readonly baselineSizes: Readonly<Record<IptablesVariant, readonly number[]>>;
  /** Full loads of each size. */
  readonly loads: number;
  /** Changes, and Services that are added, at each size. */
  readonly changes: number;
  /** Partial syncs of kube-proxy. */
  readonly partials: number;
  /** Turns between the namespaces, each of some connections to each address. */
  readonly turns: number;
}

/** The figures of one size. CPU times are the tool's, in milliseconds. */
export interface SizeFigures {
  readonly services: number;
  readonly lines: number;
  readonly loadCpuMs: Spread;
  readonly loadWallMs: Spread;
  /** Most resident memory of the tool. */
  readonly peakMiB: number;
}

/** The figures of kube-proxy's layout. */
export interface BaselineFigures {
  readonly services: number;
  readonly loadCpuMs: Spread;
  readonly loadWallMs: Spread;
  readonly partialCpuMs: Spread;
}

/** The figures of changes among this number of Services. */
export interface ChangeFigures {
  readonly services: number;
  readonly mostLines: number;
  readonly changeCpuMs: Spread;
  readonly addCpuMs: Spread;
  /** One rule in a chain that nothing leads to: what any write to this table takes. */
  readonly leastCpuMs: Spread;
}

/** All figures of one variant. */
export interface VariantFigures {
  readonly variant: IptablesVariant;
  readonly sizes: readonly SizeFigures[];
  readonly baselines: readonly BaselineFigures[];
  readonly changes: readonly ChangeFigures[];
  readonly connects: readonly ConnectFigures[];
}

/** Among so few Services a change has to cost about as much as among all. */
const SMALL = 100;
/** Among so few Services a first packet has to take about as long as among all. */
const TINY = 10;
const LEAST_WRITE = [
  "*nat",
  ":KUBE-PROXY-CANARY - [0:0]",
  "-A KUBE-PROXY-CANARY -j RETURN",
  "COMMIT",
  "",
].join("\n");

/** Measures. Calls `tell` with the current step. */
export async function measureVariant(
  variant: IptablesVariant,
  form: BenchForm,
  tell: (what: string) => void,
): Promise<VariantFigures> {
  tell(`${variant}: full loads`);
  const sizes = await measureSizes(variant, form);
  const baselines: BaselineFigures[] = [];
  for (const services of form.baselineSizes[variant]) {
    tell(`${variant}: ${services} Services in kube-proxy's layout`);
    baselines.push(await measureBaseline(variant, services, form));
  }
  const largest = form.sizes.at(-1) ?? SMALL;
  tell(`${variant}: changes and connections`);
  await using tiny = await BenchRules.create(variant, TINY);
  await using small = await BenchRules.create(variant, SMALL);
  await using large = await BenchRules.create(variant, largest);
  const connects = await measureConnects([tiny, large], form.turns);
  const changes = await measureChanges([small, large], form);
  return { variant, sizes, baselines, changes, connects };
}

/** Takes turns between the sizes: what else happens on the machine hits all of them alike. */
async function measureSizes(
  variant: IptablesVariant,
  { sizes, loads }: BenchForm,
): Promise<readonly SizeFigures[]> {
  const taken = sizes.map((services) => ({ services, writes: [] as RuleWrite[] }));
  for (let load = 0; load < loads; load++) {
    for (const { services, writes } of taken) {
      await using rules = await BenchRules.create(variant, services);
      writes.push(rules.load);
    }
  }
  return taken.map(({ services, writes }) => ({
    services,
    lines: writes[0]?.lines ?? NaN,
    loadCpuMs: spreadOf(writes.map(({ run }) => run.cpuMs)),
    loadWallMs: spreadOf(writes.map(({ run }) => run.wallMs)),
    peakMiB: Math.max(...writes.map(({ run }) => run.peakMiB)),
  }));
}

async function measureBaseline(
  variant: IptablesVariant,
  services: number,
  { partials }: BenchForm,
): Promise<BaselineFigures> {
  await using namespace = await BenchNamespace.create(iptablesTool(variant));
  const load = await namespace.give(kubeProxyFull(services));
  const partialCpuMs: number[] = [];
  for (let version = 1; version <= partials; version++) {
    const text = kubeProxyPartial(services, { changed: services >> 1, version });
    partialCpuMs.push((await namespace.give(text)).cpuMs);
  }
  return {
    services,
    loadCpuMs: spreadOf([load.cpuMs]),
    loadWallMs: spreadOf([load.wallMs]),
    partialCpuMs: spreadOf(partialCpuMs),
  };
}

/** Takes turns between the sizes, too. */
async function measureChanges(
  all: readonly BenchRules[],
  { changes }: BenchForm,
): Promise<readonly ChangeFigures[]> {
  const taken = all.map((rules) => ({
    rules,
    changed: [] as RuleWrite[],
    added: [] as RuleWrite[],
    least: [] as ToolRun[],
  }));
  for (let change = 0; change < changes; change++) {
    for (const { rules, changed, added, least } of taken) {
      changed.push(await rules.change(change * 997));
      added.push(await rules.add());
      least.push(await rules.namespace.give(LEAST_WRITE));
    }
  }
  return taken.map(({ rules, changed, added, least }) => ({
    services: rules.services,
    mostLines: Math.max(...[...changed, ...added].map(({ lines }) => lines)),
    changeCpuMs: spreadOf(changed.map(({ run }) => run.cpuMs)),
    addCpuMs: spreadOf(added.map(({ run }) => run.cpuMs)),
    leastCpuMs: spreadOf(least.map(({ cpuMs }) => cpuMs)),
  }));
}
