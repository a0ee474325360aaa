/**
 * The options of the benchmark's rules.
 *
 * @module
 */
import {
  defaultRenderOptions,
  type NftablesRenderOptions,
} from "../../../backends/nftables/render_options.ts";

/** kube-proxy's defaults. */
export const BENCH_OPTIONS: NftablesRenderOptions = defaultRenderOptions("IPv4");
