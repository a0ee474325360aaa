/** Objects, lists and events in protobuf, written field by field, so that tests can damage them. */
import { BinaryWriter } from "@bufbuild/protobuf/wire";

/** A message: the number of a field and its value, in order. */
export type MessageFields = readonly (readonly [number: number, value: MessageValue])[];

/** Text, a number, or the bytes of a message. */
export type MessageValue = string | number | Uint8Array;

/** Writes a message. */
export function message(fields: MessageFields): Uint8Array<ArrayBuffer> {
  const writer = new BinaryWriter();
  for (const [number, value] of fields) {
    if (typeof value === "number") writer.tag(number, 0).int64(value);
    else if (typeof value === "string") writer.tag(number, 2).string(value);
    else writer.tag(number, 2).bytes(value);
  }
  return writer.finish() as Uint8Array<ArrayBuffer>;
}

/** A Service with one port. */
export function protobufService(
  name: string,
  { resourceVersion = "5", clusterIp = "10.0.0.1", annotations = {} }: {
    readonly resourceVersion?: string;
    readonly clusterIp?: string;
    readonly annotations?: Readonly<Record<string, string>>;
  } = {},
): Uint8Array<ArrayBuffer> {
  const port = message([[1, "http"], [2, "TCP"], [3, 80], [5, 0]]);
  const entries = Object.entries(annotations).map(([key, value]) =>
    [12, message([[1, key], [2, value]])] as const
  );
  return message([
    [1, message([[1, name], [3, "shop"], [6, resourceVersion], ...entries])],
    [2, message([[1, port], [3, clusterIp], [4, "ClusterIP"], [18, clusterIp]])],
    [3, message([[1, message([])]])],
  ]);
}

/** The envelope of an object. */
export function envelope(kind: string, raw: Uint8Array): Uint8Array<ArrayBuffer> {
  const unknown = message([[1, message([[1, "v1"], [2, kind]])], [2, raw], [3, ""], [4, ""]]);
  return concat([new TextEncoder().encode("k8s\0"), unknown]);
}

/** A list in its envelope. */
export function protobufList(
  kind: string,
  items: readonly Uint8Array[],
  { version = "7", next = "" }: { readonly version?: string; readonly next?: string } = {},
): Uint8Array<ArrayBuffer> {
  const meta = message([[1, ""], [2, version], [3, next]]);
  const fields = items.map((item) => [2, item] as const);
  return envelope(`${kind}List`, message([[1, meta], ...fields]));
}

/** An event of a watch, after its length. */
export function protobufEvent(type: string, object: Uint8Array): Uint8Array<ArrayBuffer> {
  const event = message([[1, type], [2, message([[1, object]])]]);
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, event.length);
  return concat([length, event]);
}

/** Joins bytes. */
export function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}
