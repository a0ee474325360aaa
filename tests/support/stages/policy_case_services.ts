/** The Services of the pods of the cases of NetworkPolicy. */
import { type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import { caseAddresses } from "../../policy/case_addresses.ts";
import { CASE_PORTS, type CasePod, casePods } from "../../policy/policy_case.ts";
import { testProxyPlan, testServicePlan } from "../builders/service_plans.ts";

/** The address of the Service of a pod. */
export function clusterIpOf(pod: CasePod, family: IpFamily): string {
  const number = casePods().indexOf(pod) + 1;
  return family === "IPv4" ? `172.30.0.${number}` : `fd00:172:30::${number}`;
}

/** A Service for each pod, with all its ports. */
export function caseServices(family: IpFamily): ProxyPlan {
  return testProxyPlan(
    casePods().flatMap((pod) =>
      CASE_PORTS.flatMap((port) =>
        (["TCP", "UDP"] as const).map((protocol) => {
          const address = parseIpAddress(caseAddresses(family).addressOf(pod));
          const host = family === "IPv4" ? address : `[${address}]`;
          return testServicePlan({
            name: pod.replace("/", "-"),
            portName: `p${port}-${protocol.toLowerCase()}`,
            protocol,
            port,
            clusterIp: clusterIpOf(pod, family),
            to: [`${host}:${port}`],
          });
        })
      )
    ),
  );
}
