import type { BenchTool } from "../bench_namespace.ts";

/** `nft` as the mode runs it. */
export const NFT: BenchTool = { program: "nft", args: (path) => ["-f", path] };
