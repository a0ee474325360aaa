/**
 * A plan as text, for people: the input of each tool under a line that names it. Pure.
 *
 * @module
 */
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { renderIpvs } from "./render.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import { type IpvsStep, stepText } from "./steps.ts";

/**
 * Everything, or what is for these ServicePorts. `ipvsadm -R` would end at a comment: what is to be
 * given to a tool is what stands between two of them.
 */
export function* renderText(
  plan: ProxyPlan,
  options: IpvsRenderOptions,
  keys?: ReadonlySet<ServicePortKey>,
): Generator<string> {
  const { steps, quarantined } = renderIpvs(plan, options, keys);
  for (const step of steps) {
    yield `# ${commandOf(step, options)}\n`;
    yield* stepText(step);
  }
  for (const { key, address, reason } of quarantined) {
    yield `# Left out: ${key}${address === undefined ? "" : ` (${address})`}: ${reason}\n`;
  }
}

function commandOf({ tool }: IpvsStep, { family }: IpvsRenderOptions): string {
  switch (tool) {
    case "ipset":
      return "ipset restore";
    case "iptables":
      return `${family === "IPv4" ? "iptables" : "ip6tables"}-restore --noflush`;
    case "ipvsadm":
      return "ipvsadm -R";
    case "ip":
      return "ip -batch -";
  }
}
