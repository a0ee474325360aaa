import * as v from "valibot";
import { tryParseIpAddress } from "../../net/ip_address.ts";
import { defineKind, type ObjectOf } from "../kind.ts";
import { HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL } from "../labels.ts";
import {
  at,
  cidr,
  dnsLabel,
  fields,
  ip,
  isServableAddress,
  list,
  metadata,
  pointerAt,
  portName,
  portNumber,
  protocol,
  text,
  UID,
  wholeNumber,
} from "../schema.ts";
import { MODE_ANNOTATIONS } from "../service_annotations.ts";
import { completeService } from "./complete_service.ts";

const clusterIp = v.pipe(
  text,
  v.check(
    (input) => input === "None" || isServableAddress(tryParseIpAddress(input)),
    "has to be None, or an IPv4 or IPv6 address that is not unspecified, link-local or multicast",
  ),
);

const trafficPolicy = v.nullish(v.picklist(["Cluster", "Local"], "has to be Cluster or Local"));

const schema = fields({
  metadata: at(
    1,
    metadata(dnsLabel, {
      labels: [HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL],
      annotations: MODE_ANNOTATIONS,
      extra: UID,
    }),
  ),
  spec: at(
    2,
    fields({
      type: at(
        4,
        v.nullish(v.picklist(
          ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"],
          "has to be ClusterIP, NodePort, LoadBalancer or ExternalName",
        )),
      ),
      clusterIP: at(3, v.nullish(clusterIp)),
      clusterIPs: at(18, list(clusterIp)),
      ipFamilies: at(19, list(v.picklist(["IPv4", "IPv6"], "has to be IPv4 or IPv6"))),
      ports: at(
        1,
        list(fields({
          name: at(1, v.nullish(portName)),
          protocol: at(2, v.nullish(protocol)),
          port: at(3, portNumber(1)),
          nodePort: at(5, v.nullish(portNumber(0))),
        }, { unread: "appProtocol targetPort" })),
      ),
      externalIPs: at(5, list(ip)),
      externalTrafficPolicy: at(11, trafficPolicy),
      internalTrafficPolicy: pointerAt(22, trafficPolicy),
      healthCheckNodePort: at(12, v.nullish(portNumber(0))),
      loadBalancerSourceRanges: at(9, list(cidr)),
      sessionAffinity: at(
        7,
        v.nullish(v.picklist(["None", "ClientIP"], "has to be None or ClientIP")),
      ),
      sessionAffinityConfig: at(
        14,
        v.nullish(fields({
          clientIP: at(
            1,
            v.nullish(fields({
              timeoutSeconds: pointerAt(
                1,
                v.nullish(wholeNumber(
                  { least: 1, most: 86_400 },
                  "has to be a whole number of seconds between 1 and 86400 (one day)",
                )),
              ),
            })),
          ),
        })),
      ),
    }, {
      unread:
        "selector loadBalancerIP loadBalancerClass allocateLoadBalancerNodePorts externalName " +
        "publishNotReadyAddresses ipFamilyPolicy trafficDistribution",
    }),
  ),
  status: at(
    3,
    v.nullish(fields({
      loadBalancer: at(
        1,
        v.nullish(fields({
          ingress: at(
            1,
            list(fields({
              ip: at(1, v.nullish(ip)),
              ipMode: pointerAt(
                3,
                v.nullish(v.picklist(["VIP", "Proxy"], "has to be VIP or Proxy")),
              ),
            }, { isOpen: true })),
          ),
        }, { isOpen: true })),
      ),
    }, { isOpen: true })),
  ),
}, { unread: "apiVersion kind" });

/** A Service as a manifest has it. */
export type ServiceManifest = v.InferOutput<typeof schema>;

/** core/v1 Service. */
export const SERVICE = defineKind({
  kind: "Service",
  group: "",
  versions: ["v1"],
  plural: "services",
  namespaced: true,
  schema,
  complete: completeService,
});

/** A Service, as far as it is read. */
export type Service = ObjectOf<typeof SERVICE>;

/** A port of a Service. */
export type ServiceSpecPort = NonNullable<Service["spec"]["ports"]>[number];
