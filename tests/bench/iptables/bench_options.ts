import {
  hasServiceComments,
  type IptablesRenderOptions,
  renderOptionsOf,
} from "../../../backends/iptables/render_options.ts";
import { defaultRenderOptions } from "../../support/builders/iptables_render_options.ts";
import { BENCH_SHARED } from "../bench_services.ts";

/** The options of the mode for so many Services. */
export function benchOptions(services: number): IptablesRenderOptions {
  const usual = defaultRenderOptions("IPv4");
  const serviceComments = hasServiceComments(services);
  return renderOptionsOf(usual, BENCH_SHARED, {
    ...usual,
    serviceComments,
    masqueradesRanges: true,
  });
}
