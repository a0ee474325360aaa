/**
 * A whole plan as input for the tools: what a machine without anything of ours would be given. Pure.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { AppliedServers } from "./applied_servers.ts";
import { diffIpvs, EMPTY_KERNEL, KNOWN_KERNEL } from "./diff.ts";
import { IpvsLayout } from "./layout.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import { type IpvsStep, stepText } from "./steps.ts";

/** Everything of one IP family. */
interface IpvsRendering {
  readonly steps: readonly IpvsStep[];
  /** What is not as its Service asks. */
  readonly quarantined: readonly Quarantined[];
}

/**
 * Renders a plan from nothing, or what is for some ServicePorts where the rest is there. They go in by
 * key: the same plan gives the same bytes.
 */
export function renderIpvs(
  plan: ProxyPlan,
  options: IpvsRenderOptions,
  keys?: ReadonlySet<ServicePortKey>,
): IpvsRendering {
  const layout = new IpvsLayout(plan.shared, options);
  for (const key of [...keys ?? plan.services.keys()].sort()) {
    const service = plan.services.get(key);
    if (service) layout.set(service);
  }
  const kernel = keys === undefined ? EMPTY_KERNEL : KNOWN_KERNEL;
  const { steps } = diffIpvs(layout, new AppliedServers(), kernel);
  return { steps, quarantined: layout.quarantined };
}

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
