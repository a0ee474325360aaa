/**
 * Copies the demo's manifests to a temporary folder with free ports, and edits them there while
 * kube-relay watches.
 *
 * @module
 */
import { type Document, parseAllDocuments } from "yaml";
import { findFreePort } from "./endpoints.ts";

/** A Service of the demo, as kube-relay reads it. */
export interface DemoService {
  readonly name: string;
  readonly clusterIp: string;
  readonly port: number;
  readonly protocol: "TCP" | "UDP";
  /** Addresses of its endpoints; they share one port. */
  readonly endpoints: readonly string[];
  readonly endpointPort: number;
}

interface DemoFile {
  readonly path: string;
  readonly documents: readonly Document[];
}

/** The demo's copy of the manifests. */
export class DemoManifests {
  readonly folder: string;
  readonly services: readonly DemoService[];
  readonly #files: readonly DemoFile[];

  private constructor(
    folder: string,
    files: readonly DemoFile[],
    services: readonly DemoService[],
  ) {
    this.folder = folder;
    this.#files = files;
    this.services = services;
  }

  /** Copies the manifests with free ports. `spare` is the address of a later endpoint. */
  static async copy(
    source: URL,
    { folder, spare }: { readonly folder: string; readonly spare: string },
  ): Promise<DemoManifests> {
    const files: DemoFile[] = [];
    for await (const { name } of Deno.readDir(source)) {
      if (!name.endsWith(".yaml")) continue;
      const text = await Deno.readTextFile(new URL(name, source));
      const documents = parseAllDocuments(text) as Document[];
      files.push({ path: `${folder}/${name}`, documents });
    }
    const documents = files.flatMap((file) => file.documents);
    const services = documents
      .filter((document) => document.get("kind") === "Service")
      .map((service) => fillInPorts(service, findSlice(documents, service), spare))
      .sort((left, right) => left.name.localeCompare(right.name));
    const manifests = new DemoManifests(folder, files, services);
    for (const file of files) await manifests.#save(file);
    return manifests;
  }

  /** Returns the Service with this name. */
  service(name: string): DemoService {
    const found = this.services.find((service) => service.name === name);
    if (!found) throw new Error(`Cannot find Service '${name}' in examples/demo`);
    return found;
  }

  /** Replaces the address of an endpoint and saves the file as an editor does. */
  async replaceEndpoint(service: string, from: string, to: string): Promise<void> {
    for (const file of this.#files) {
      for (const document of file.documents) {
        if (serviceOf(document) !== service) continue;
        const endpoints = (document.toJS() as SliceText).endpoints ?? [];
        const index = endpoints.findIndex(({ addresses }) => addresses[0] === from);
        document.setIn(["endpoints", index, "addresses", 0], to);
        await this.#save(file);
      }
    }
  }

  async #save({ path, documents }: DemoFile): Promise<void> {
    const temporary = `${path}.new`;
    await Deno.writeTextFile(temporary, documents.map(String).join("---\n"));
    await Deno.rename(temporary, path);
  }
}

/** The fields of a slice that the demo reads. */
interface SliceText {
  readonly endpoints?: readonly { readonly addresses: readonly string[] }[];
}

function fillInPorts(service: Document, slice: Document | undefined, spare: string): DemoService {
  const clusterIp = String(service.getIn(["spec", "clusterIP"]));
  const protocol = service.getIn(["spec", "ports", 0, "protocol"]) === "UDP" ? "UDP" : "TCP";
  const transport = protocol === "UDP" ? "udp" : "tcp";
  const port = findFreePort([clusterIp], transport);
  service.setIn(["spec", "ports", 0, "port"], port);
  const endpoints = ((slice?.toJS() as SliceText | undefined)?.endpoints ?? [])
    .map(({ addresses }) => addresses[0]!);
  const endpointPort = endpoints.length > 0 ? findFreePort([...endpoints, spare], transport) : 0;
  if (slice && endpoints.length > 0) slice.setIn(["ports", 0, "port"], endpointPort);
  const name = String(service.getIn(["metadata", "name"]));
  return { name, clusterIp, port, protocol, endpoints, endpointPort };
}

function findSlice(documents: readonly Document[], service: Document): Document | undefined {
  const name = service.getIn(["metadata", "name"]);
  return documents.find((document) => serviceOf(document) === name);
}

/** Returns the Service of a slice; `undefined` for other kinds. */
function serviceOf(document: Document): string | undefined {
  if (document.get("kind") !== "EndpointSlice") return undefined;
  return String(document.getIn(["metadata", "labels", "kubernetes.io/service-name"]));
}
