import { BenchNamespace } from "../bench_namespace.ts";
import { spreadOf } from "../statistics.ts";
import { kubeProxyFull } from "./kube_proxy_layout.ts";
import { NFT } from "./nft_tool.ts";
import { TableModel, type TableSize } from "./table_model.ts";

/** MiB of one table. */
export interface KernelMemory {
  readonly size: TableSize;
  readonly ours: number;
  /** Of kube-proxy's layout; `undefined` = it was not loaded. */
  readonly baseline: number | undefined;
}

/** Loads of each table; the median counts. */
const RUNS = 3;
/** Readings that have to agree before the memory counts as settled, and how well. */
const READINGS = 4;
const CLOSE_MIB = 0.1;
const PAUSE_MS = 100;
const LONGEST_MS = 10_000;

/**
 * Measures all tables at the same time. The kernel may free the memory of a deleted namespace at
 * any time, so all are measured before one is deleted. kube-proxy's layout is loaded up to this
 * number of Services.
 */
export async function measureKernelMemory(
  sizes: readonly TableSize[],
  { baselineUpTo }: { readonly baselineUpTo: number },
): Promise<readonly KernelMemory[]> {
  // deno-lint-ignore no-undef -- the linter does not know it yet
  await using namespaces = new AsyncDisposableStack();
  const figures: KernelMemory[] = [];
  const loadOnce = async (text: Iterable<string>) => {
    const namespace = namespaces.use(await BenchNamespace.create(NFT));
    const before = await settledKernelMemoryMiB();
    await namespace.give(text);
    return await settledKernelMemoryMiB() - before;
  };
  // Others may give something back meanwhile.
  const load = async (text: () => Iterable<string> | Promise<Iterable<string>>) => {
    const found: number[] = [];
    for (let run = 0; run < RUNS; run++) found.push(await loadOnce(await text()));
    return spreadOf(found).median;
  };
  for (const size of sizes) {
    const ours = await load(async () => (await new TableModel(size).transaction()).text());
    const baseline = size.services <= baselineUpTo
      ? await load(() => kubeProxyFull(size))
      : undefined;
    figures.push({ size, ours, baseline });
  }
  return figures;
}

/**
 * Returns MiB in small objects of the kernel for processes, of the whole machine, once the value is
 * stable. It contains nftables' memory, except for hash tables (8 bytes for each element or two),
 * and little else. The difference of two readings is therefore the memory allocated between them.
 */
async function settledKernelMemoryMiB(): Promise<number> {
  const started = performance.now();
  let last: number[] = [];
  for (;;) {
    last = [...last, await kernelMemoryMiB()].slice(-READINGS);
    const isSettled = last.length === READINGS && Math.max(...last) - Math.min(...last) < CLOSE_MIB;
    if (isSettled || performance.now() - started > LONGEST_MS) return last.at(-1)!;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

async function kernelMemoryMiB(): Promise<number> {
  const { success, stdout } = await new Deno.Command("cat", { args: ["/proc/slabinfo"] }).output();
  if (!success) throw new Error("Cannot read /proc/slabinfo: it takes root");
  const text = new TextDecoder().decode(stdout);
  // A kernel without memory control groups has one kind only.
  const name = text.includes("\nkmalloc-cg-") ? "kmalloc-cg-" : "kmalloc-";
  const caches = text.matchAll(new RegExp(`^${name}\\S+\\s+\\d+\\s+(\\d+)\\s+(\\d+)`, "gm"));
  const bytes = caches.reduce((sum, [, objects, size]) => sum + Number(objects) * Number(size), 0);
  return bytes / 2 ** 20;
}
