import type { Node } from "../../api/kinds/node.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { planSettingsOf } from "../run/plan_settings.ts";

/** What is known of a node. */
interface KnownNode {
  readonly proxy: KubeProxyConfiguration;
  readonly nodeName: string;
  readonly mode: BackendMode;
  readonly node: Node | undefined;
  /** Those of its interfaces, or some of them. */
  readonly others: Iterable<IpAddress>;
}

/** Each once; the first of a family stands for the node. */
export function knownNodeAddresses(
  { proxy, nodeName, mode, node, others }: KnownNode,
): readonly IpAddress[] {
  const { addresses } = planSettingsOf(proxy, { nodeName, mode }).nodeState(node);
  return [...new Set([...addresses, ...others])];
}
