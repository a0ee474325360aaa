// deno-lint-ignore-file no-console -- its output is what it is for
/**
 * Runs kube-relay's share of a full load and of changes, from plans of Services to the tool's
 * input, and prints the cost. A separate process, so that compiled code is that of a first sync.
 *
 * @module
 */
import process from "node:process";
import { renderNftables } from "../../../backends/nftables/render.ts";
import type { NftTransaction } from "../../../backends/netfilter/nft/nft_transaction.ts";
import { testProxyPlan } from "../../support/builders/service_plans.ts";
import { BENCH_SHARED, benchServicePlan } from "../bench_services.ts";
import { spreadOf } from "../statistics.ts";
import { BENCH_OPTIONS } from "./bench_options.ts";
import { TableModel } from "./table_model.ts";

/** The output, as JSON. */
export interface OwnCost {
  readonly services: number;
  readonly loadCpuMs: number;
  /** Mean of one change of each kind, from the first one on. */
  readonly changeCpuMs: number;
}

/** Changes of each kind. */
const CHANGES = 200;
const RUNS = 3;

/** Runs the process some times; the medians. */
export async function measureOwnCost(services: number): Promise<OwnCost> {
  const costs: OwnCost[] = [];
  for (let run = 0; run < RUNS; run++) costs.push(await runOnce(services));
  return {
    services,
    loadCpuMs: spreadOf(costs.map(({ loadCpuMs }) => loadCpuMs)).median,
    changeCpuMs: spreadOf(costs.map(({ changeCpuMs }) => changeCpuMs)).median,
  };
}

async function runOnce(services: number): Promise<OwnCost> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", "--no-check", import.meta.url, String(services)],
  }).output();
  if (code !== 0) {
    throw new Error(`Cannot measure ${services}: ${new TextDecoder().decode(stderr)}`);
  }
  return JSON.parse(new TextDecoder().decode(stdout));
}

if (import.meta.main) {
  const services = Number(Deno.args[0]);
  const plans = Array.from({ length: services }, (_, index) => benchServicePlan(index));
  const plan = testProxyPlan(plans, { shared: BENCH_SHARED });
  const loadCpuMs = await cpuOf(() => encode(renderNftables(plan, BENCH_OPTIONS).transaction));
  const cost: OwnCost = {
    services,
    loadCpuMs,
    changeCpuMs: await changeCpuMs(services),
  };
  console.log(JSON.stringify(cost));
}

async function changeCpuMs(services: number): Promise<number> {
  const model = new TableModel({ services, endpoints: 2 });
  await model.transaction();
  const all = await cpuOf(async () => {
    for (let change = 0; change < CHANGES; change++) {
      const index = (change * 997) % services;
      for (
        const step of [
          () => model.change(index),
          () => model.grow(index),
          () => model.shrink(index),
          () => model.add(),
          () => model.remove(),
        ]
      ) {
        step();
        encode(await model.transaction());
      }
    }
  });
  return all / (5 * CHANGES);
}

function encode(transaction: NftTransaction): void {
  const encoder = new TextEncoder();
  let bytes = 0;
  for (const piece of transaction.text()) bytes += encoder.encode(piece).length;
  if (bytes === 0) throw new Error("Nothing was to be written");
}

/** Milliseconds of CPU of all threads of this process. */
async function cpuOf(work: () => void | Promise<void>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
