import { ENDPOINT_SLICE } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../api/kinds/endpoints.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { SERVICE_CIDR } from "../../api/kinds/service_cidr.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { ObjectProblem } from "../../api/problem.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { PlanSettings } from "../run/plan_settings.ts";
import { ProxyPipeline } from "../service/proxy_pipeline.ts";

/** The plan of one family, and what could not be used for it. */
interface RenderedPlan {
  readonly plan: ProxyPlan;
  readonly problems: readonly ObjectProblem[];
}

/** For whom it is planned. */
interface RenderPlanOptions {
  readonly family: IpFamily;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  readonly settings: PlanSettings;
  /** Addresses of the machine that it is planned for. @default {those of its Node} */
  readonly interfaceAddresses?: readonly IpAddress[];
}

/** The own Node, if one was found. */
export function ownNode(informers: InformerSet): Node | undefined {
  return informers.of(NODE).values().next().value;
}

/**
 * Plans everything once. The node's addresses are those that are given, or those of its object and of
 * the bind address: those of the machine that this runs on mean nothing here.
 */
export async function renderPlan(
  { clock }: { readonly clock: Clock },
  informers: InformerSet,
  { family, configuration: { proxy, relay }, settings, interfaceAddresses }: RenderPlanOptions,
): Promise<RenderedPlan> {
  const node = settings.nodeState(ownNode(informers));
  const allowExternalIps = featureEnabled(proxy, "AllowServiceExternalIPs");
  const pipeline = new ProxyPipeline({ clock }, { family, node, settings, allowExternalIps });
  pipeline.setNode(node);
  pipeline.setInterfaceAddresses(
    interfaceAddresses ??
      node.addresses.filter((address) => ipFamilyOf(address) === family).toSorted(),
  );
  const fromApi = [...informers.of(SERVICE_CIDR).values()].flatMap(({ spec }) => spec.cidrs ?? []);
  const serviceCidrs = relay.serviceCidrs.length > 0
    ? relay.serviceCidrs
    : fromApi.map(tryParseCidr).filter((cidr) => cidr !== undefined);
  pipeline.setServiceCidrs(serviceCidrs.filter((cidr) => cidrFamilyOf(cidr) === family));
  for (const service of informers.of(SERVICE).values()) pipeline.onService(undefined, service);
  for (const slice of informers.of(ENDPOINT_SLICE).values()) pipeline.onEndpointSlice(slice, "set");
  for (const endpoints of informers.of(ENDPOINTS).values()) pipeline.onEndpoints(endpoints, "set");
  const { problems } = await pipeline.collectChanges([]);
  return { plan: pipeline.plan, problems };
}
