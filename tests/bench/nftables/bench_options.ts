/**
 * What the rules of the benchmark depend on.
 *
 * @module
 */
import {
  defaultRenderOptions,
  type NftablesRenderOptions,
} from "../../../backends/nftables/render_options.ts";

/** kube-proxy's defaults. */
export const BENCH_OPTIONS: NftablesRenderOptions = defaultRenderOptions("IPv4");
