/** Informers of the kinds from which Services are planned; they record their events. */
import { ENDPOINT_SLICE, type EndpointSlice } from "../../../lib/api/kinds/endpoint_slice.ts";
import { ENDPOINTS, type Endpoints } from "../../../lib/api/kinds/endpoints.ts";
import { NODE, type Node } from "../../../lib/api/kinds/node.ts";
import { SERVICE, type Service } from "../../../lib/api/kinds/service.ts";
import { SERVICE_CIDR, type ServiceCidr } from "../../../lib/api/kinds/service_cidr.ts";
import { type KubeObject, objectKey } from "../../../lib/api/kind.ts";
import { serviceSubscriptions } from "../../../lib/app/service/service_subscriptions.ts";
import type { Informer } from "../../../lib/kube/informer.ts";
import { InformerSet } from "../../../lib/kube/informer_set.ts";

/** The kinds to follow, and the text of their events. */
export interface RecordingInformersOptions {
  /** @default {"node-a"} */
  readonly nodeName?: string;
  /** @default {false} */
  readonly endpointsFallback?: boolean;
  /** Words of an event, before kind and key. @default {"+", "~" and "-", and nothing of "synced"} */
  readonly words?: Readonly<Record<"add" | "update" | "delete", string>> & {
    readonly synced?: string;
  };
}

/** Informers and their events. */
export class RecordingInformers {
  /** Such as `+Service default/web`, in order. */
  readonly events: string[] = [];
  readonly set = new InformerSet();

  constructor(
    { nodeName = "node-a", endpointsFallback = false, words }: RecordingInformersOptions = {},
  ) {
    const { add, update, delete: gone, synced } = words ??
      { add: "+", update: "~", delete: "-" } as NonNullable<typeof words>;
    for (const [spec, options] of serviceSubscriptions(nodeName, endpointsFallback)) {
      const note = (word: string, object: KubeObject) =>
        void this.events.push(`${word}${spec.kind} ${objectKey(object)}`);
      this.set.subscribe(spec, options, {
        onAdd: (object) => note(add, object),
        onUpdate: (_, object) => note(update, object),
        onDelete: (object) => note(gone, object),
        onSynced: () => synced !== undefined && this.events.push(`${synced}${spec.kind}`),
      });
    }
  }

  get services(): Informer<Service> {
    return this.set.of(SERVICE);
  }

  get endpointSlices(): Informer<EndpointSlice> {
    return this.set.of(ENDPOINT_SLICE);
  }

  get endpoints(): Informer<Endpoints> {
    return this.set.of(ENDPOINTS);
  }

  get nodes(): Informer<Node> {
    return this.set.of(NODE);
  }

  get serviceCidrs(): Informer<ServiceCidr> {
    return this.set.of(SERVICE_CIDR);
  }

  /** The events since the last call. */
  take(): readonly string[] {
    return this.events.splice(0);
  }

  /** The cluster IP of a Service in the namespace default; `undefined` when there is none. */
  clusterIp(name: string): string | undefined {
    return this.services.get(`default/${name}`)?.spec.clusterIP;
  }
}
