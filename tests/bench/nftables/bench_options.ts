/**
 * The options of the benchmark's rules.
 *
 * @module
 */
import type { NftablesRenderOptions } from "../../../backends/nftables/render_options.ts";
import { defaultRenderOptions } from "../../support/builders/nftables_render_options.ts";

/** kube-proxy's defaults. */
export const BENCH_OPTIONS: NftablesRenderOptions = defaultRenderOptions("IPv4");
