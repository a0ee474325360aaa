/**
 * Measures full loads of kube-relay's and of kube-proxy's layout.
 *
 * @module
 */
import { type Spread, spreadOf } from "../statistics.ts";
import { BenchNamespace } from "../bench_namespace.ts";
import { BenchTable, type TableWrite } from "./bench_table.ts";
import { KUBE_PROXY_TABLE, kubeProxyFull, kubeProxyPartial } from "./kube_proxy_layout.ts";
import { NFT } from "./nft_tool.ts";
import type { TableSize } from "./table_model.ts";

/** The figures of one size. CPU times are the tool's, in milliseconds. */
export interface LoadFigures {
  readonly size: TableSize;
  readonly lines: number;
  readonly cpuMs: Spread;
  readonly wallMs: Spread;
  /** Most resident memory of the tool. */
  readonly peakMiB: number;
}

/** The figures of kube-proxy's layout. */
export interface BaselineFigures {
  readonly size: TableSize;
  readonly cpuMs: number;
  readonly wallMs: number;
  /** One changed endpoint: the listing of the table before every sync, and the write. */
  readonly listCpuMs: Spread;
  readonly writeCpuMs: Spread;
}

/** Takes turns between the sizes: what else happens on the machine hits all of them alike. */
export async function measureLoads(
  sizes: readonly TableSize[],
  loads: number,
): Promise<readonly LoadFigures[]> {
  const taken = sizes.map((size) => ({ size, writes: [] as TableWrite[] }));
  for (let load = 0; load < loads; load++) {
    for (const { size, writes } of taken) {
      await using table = await BenchTable.create(size);
      writes.push(table.load);
    }
  }
  return taken.map(({ size, writes }) => ({
    size,
    lines: writes[0]?.lines ?? NaN,
    cpuMs: spreadOf(writes.map(({ run }) => run.cpuMs)),
    wallMs: spreadOf(writes.map(({ run }) => run.wallMs)),
    peakMiB: Math.max(...writes.map(({ run }) => run.peakMiB)),
  }));
}

/** One load, and a number of changes. */
export async function measureBaseline(size: TableSize, changes: number): Promise<BaselineFigures> {
  await using namespace = await BenchNamespace.create(NFT);
  const { cpuMs, wallMs } = await namespace.give(kubeProxyFull(size));
  const list: number[] = [];
  const write: number[] = [];
  for (let version = 1; version <= changes; version++) {
    const listing = ["--json", "--terse", "list", "table", ...KUBE_PROXY_TABLE.split(" ")];
    list.push((await namespace.run(NFT.program, listing)).cpuMs);
    const text = kubeProxyPartial(size.services >> 1, { endpoints: size.endpoints, version });
    write.push((await namespace.give(text)).cpuMs);
  }
  return {
    size,
    cpuMs,
    wallMs,
    listCpuMs: spreadOf(list),
    writeCpuMs: spreadOf(write),
  };
}
