/**
 * Measures the cost of `--service-counters`: the counting table compared with the same Services
 * without it.
 *
 * @module
 */
import { atOnce } from "../../../backends/netfilter/in_steps.ts";
import { claimsOf } from "../../../backends/nftables/entry_id.ts";
import {
  countingSteps,
  countingTable,
  isCounted,
} from "../../../backends/nftables/counting_table.ts";
import { renderNftables } from "../../../backends/nftables/render.ts";
import { testProxyPlan, testServicePlan } from "../../support/builders/service_plans.ts";
import { BENCH_PORT } from "../agent_protocol.ts";
import { BenchNamespace } from "../bench_namespace.ts";
import { BENCH_SHARED, benchServicePlan } from "../bench_services.ts";
import { type ConnectFigures, DIRECT_ADDRESS, measureConnects } from "../measure_connects.ts";
import { type Spread, spreadOf } from "../statistics.ts";
import { BENCH_OPTIONS } from "./bench_options.ts";
import { NFT } from "./nft_tool.ts";

/** The figures. CPU times are the tool's, in milliseconds. */
export interface CountingFigures {
  readonly services: number;
  /** Of the forwarding table, and of the counting table. */
  readonly loadCpuMs: number;
  readonly countingCpuMs: number;
  /** A Service more, for the table that counts; other changes are none there. */
  readonly addCpuMs: Spread;
  readonly readCpuMs: Spread;
  /** Without and with. */
  readonly connects: readonly [ConnectFigures, ConnectFigures];
  /** Microseconds of a datagram of a known flow, without and with. */
  readonly toService: readonly [Spread, Spread];
  readonly toOther: readonly [Spread, Spread];
}

/** The extent of the measurement. */
export interface CountingForm {
  readonly services: number;
  readonly turns: number;
}

/** A Service of UDP, for datagrams. */
const SINK = testServicePlan({
  name: "sink",
  clusterIp: "10.129.0.1",
  port: BENCH_PORT,
  protocol: "UDP",
  masqueradeInternal: "off-cluster",
  to: [`${DIRECT_ADDRESS}:${BENCH_PORT}`],
});
const DATAGRAMS = 10_000;
const REPEATED = 15;

/** Measures, in two namespaces in turn. */
export async function measureCounting(
  { services, turns }: CountingForm,
): Promise<CountingFigures> {
  await using without = await BenchNamespace.create(NFT);
  await using counting = await BenchNamespace.create(NFT);
  const plans = Array.from({ length: services }, (_, index) => benchServicePlan(index));
  const plan = testProxyPlan([...plans, SINK], { shared: BENCH_SHARED });
  const text = [...renderNftables(plan, BENCH_OPTIONS).transaction.text()];
  const { cpuMs: loadCpuMs } = await without.give(text);
  await counting.give(text);
  const frontends = [...plan.services.values()].flatMap(frontendsOf);
  const all = atOnce(countingSteps("IPv4", { declares: true, added: frontends }));
  const { cpuMs: countingCpuMs } = await counting.give(all.text());
  const places = [without, counting].map((namespace) => ({ namespace, services }));
  const [connectsWithout, connectsWith] = await measureConnects(places, turns);
  const toService = await measureSending([without, counting], { address: SINK.clusterIp, turns });
  const toOther = await measureSending([without, counting], { address: DIRECT_ADDRESS, turns });
  return {
    services,
    loadCpuMs,
    countingCpuMs,
    ...await measureTool(counting, services),
    connects: [connectsWithout!, connectsWith!],
    toService,
    toOther,
  };
}

async function measureTool(
  namespace: BenchNamespace,
  services: number,
): Promise<Pick<CountingFigures, "addCpuMs" | "readCpuMs">> {
  const added: number[] = [];
  const read: number[] = [];
  for (let round = 0; round < REPEATED; round++) {
    const frontends = frontendsOf(benchServicePlan(services + round));
    const { family, name } = countingTable("IPv4");
    const transaction = atOnce(countingSteps("IPv4", { added: frontends }));
    added.push((await namespace.give(transaction.text())).cpuMs);
    read.push((await namespace.run(NFT.program, ["list", "table", family, name])).cpuMs);
  }
  return { addCpuMs: spreadOf(added), readCpuMs: spreadOf(read) };
}

async function measureSending(
  [without, counting]: readonly [BenchNamespace, BenchNamespace],
  { address, turns }: { readonly address: string; readonly turns: number },
): Promise<readonly [Spread, Spread]> {
  const times: readonly [number[], number[]] = [[], []];
  for (let turn = 0; turn < turns; turn++) {
    times[0].push(await without.send(address, DATAGRAMS));
    times[1].push(await counting.send(address, DATAGRAMS));
  }
  return [spreadOf(times[0]), spreadOf(times[1])];
}

function frontendsOf(plan: Parameters<typeof claimsOf>[0]) {
  return claimsOf(plan).filter(isCounted);
}
