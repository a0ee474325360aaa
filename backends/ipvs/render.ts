/**
 * A whole plan as input for the tools on a machine without objects of this mode. Pure.
 *
 * @module
 */
import { inPieces } from "../../lib/os/command_input.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { atOnce } from "../netfilter/in_steps.ts";
import { leftOutText } from "../netfilter/refused_items.ts";
import { IpvsChanges } from "./changes.ts";
import { fixedObjects, serviceObjects } from "./objects.ts";
import { IpvsLayout } from "./layout.ts";
import type { IpvsRenderOptions } from "./render_service.ts";

/**
 * Renders everything, or the part for these ServicePorts, sorted by key, so that the same plan gives the
 * same bytes. The input of each tool is the text between two comments, since `ipvsadm -R` would fail at
 * a comment.
 */
export function* renderText(
  plan: ProxyPlan,
  options: IpvsRenderOptions,
  keys?: ReadonlySet<ServicePortKey>,
): Generator<string> {
  const { family } = options;
  const layout = new IpvsLayout(plan.shared, options);
  const changes = new IpvsChanges();
  for (const key of [...keys ?? plan.services.keys()].sort()) {
    const service = plan.services.get(key);
    if (service === undefined) continue;
    layout.set(service);
    for (const object of serviceObjects({ plan: service, inputs: layout })) {
      changes.add(object, undefined, object.text, key);
    }
  }
  for (const object of keys === undefined ? fixedObjects(layout.ruleContext) : []) {
    changes.add(object, undefined, object.text, undefined);
  }
  const commands = {
    ip: "ip -batch -",
    ipset: "ipset restore",
    iptables: `${family === "IPv4" ? "iptables" : "ip6tables"}-restore --noflush`,
    ipvsadm: "ipvsadm -R",
    pods: "in the network namespaces of pods",
  } as const;
  for (const { tool, lines } of atOnce(changes.steps({ family, createsDevice: true }))) {
    yield `# ${commands[tool]}\n`;
    yield* inPieces(lines);
  }
  yield* layout.quarantined.map(leftOutText);
}
