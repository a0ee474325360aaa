/** The comment above rendered rules. Pure. */
import { wrapText } from "../../config/wrap_text.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { serviceKey, type ServicePortKey } from "../../proxy/service_port_name.ts";
import { VERSION } from "../cli/version.ts";

interface HeadingOptions {
  readonly mode: BackendMode;
  readonly family: IpFamily;
  readonly nodeName: string;
  /** Whether the source has a Node of this name. */
  readonly isNodeKnown: boolean;
  /** Whether the rules depend on features of the kernel that are unknown. */
  readonly asksKernel: boolean;
  readonly plan: ProxyPlan;
  /** The rendered ServicePorts; undefined means all. */
  readonly keys: ReadonlySet<ServicePortKey> | undefined;
  /** The only rendered Service, as `namespace/name`. */
  readonly service: string | undefined;
}

/** Widest line, `# ` included. */
const WIDTH = 80;

/** Lines that begin with `#`, which is a comment for every tool of every mode. */
export function renderHeading(options: HeadingOptions): string {
  const { mode, family, nodeName, isNodeKnown, asksKernel } = options;
  const paragraphs = [`kube-relay ${VERSION}, mode ${mode}, ${family}: ${extent(options)}.`];
  if (!isNodeKnown) {
    paragraphs.push(
      `There is no Node '${nodeName}': no endpoint that names a node counts as being on this ` +
        "one. --hostname-override names another.",
    );
  }
  if (asksKernel) {
    paragraphs.push(
      "The kernel is assumed to support all rules; 'kube-relay doctor' checks it.",
    );
  }
  return paragraphs.flatMap((text) => wrapText(text, { width: WIDTH - 2 }).split("\n"))
    .map((line) => `# ${line}\n`).join("");
}

function extent({ plan: { services }, keys, service, nodeName }: HeadingOptions): string {
  if (service !== undefined) {
    return `${count(keys?.size ?? 0, "port")} of Service ${service}, on node ${nodeName}`;
  }
  const names = new Set([...services.values()].map(({ name }) => serviceKey(name)));
  return `${count(services.size, "port")} of ${count(names.size, "Service")}, on node ${nodeName}`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
