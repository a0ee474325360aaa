/**
 * Reads one page of a list. It is kept in memory whole, so it is limited, and its items are parsed one at a
 * time, so that its reader can pause between them: a page of 500 EndpointSlices may have 20 MB.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";
import { findJsonItems, parseJson } from "./json_text.ts";
import { startReading } from "./object_reader.ts";
import { ProtobufCursor, ProtobufObject, readEnvelope } from "./protobuf.ts";

/** The metadata of a list. */
export interface ListMeta {
  /** The version of the list, from which a watch continues. */
  readonly resourceVersion: string;
  /** The token of the next page; `undefined` on the last page. */
  readonly continue: string | undefined;
}

/** A list response that is incomplete, or not a list. */
export class ListError extends Error {
  override name = "ListError";
}

/** A page of more than {@linkcode MAX_PAGE} bytes: one with fewer items may be smaller. */
export class PageTooLargeError extends ListError {}

/** Most bytes of a page: more than those of the largest object. */
export const MAX_PAGE = 32 * 1024 * 1024;

/**
 * Yields the items of a page in JSON, and `undefined` where its reader may pause in between; returns its
 * metadata. Throws a {@linkcode ListError} for an item that is not JSON, and for an incomplete list.
 */
export function* jsonItems(text: string): Generator<unknown, ListMeta> {
  const found = yield* findJsonItems(text);
  const envelope = parse(
    found ? `${text.slice(0, found.start)}null${text.slice(found.end)}` : text,
    () => "it was cut short or is not JSON",
  ) as Envelope;
  for (const { start, end } of found?.items ?? []) {
    yield parse(text.slice(start, end), (why) => `one of its items is not JSON: ${why}`);
  }
  const { items, metadata } = envelope ?? {};
  if (!Array.isArray(items ?? [])) throw unreadable("its 'items' has to be a list or null");
  const version = metadata?.resourceVersion;
  if (typeof version !== "string") throw unreadable(NO_VERSION);
  // Taken for an empty list, any other answer would delete everything.
  if (items === undefined) throw unreadable("it has no 'items'");
  const rest = items as readonly unknown[] | null ?? [];
  if (found && (rest.length !== 1 || rest[0] !== null)) throw unreadable("it has 'items' twice");
  // The name of the list may be written in another way.
  if (!found) yield* rest;
  return listMeta(version, metadata?.continue);
}

/** The fields of a list besides its items that were checked. */
type Envelope = {
  readonly items?: unknown;
  readonly metadata?: { readonly resourceVersion?: unknown; readonly continue?: unknown } | null;
} | null;

const NO_VERSION = "it has no metadata.resourceVersion; an API server always sends one";

function parse(text: string, describe: (why: string) => string): unknown {
  try {
    return parseJson(text);
  } catch (cause) {
    throw unreadable(describe(messageOf(cause)), cause);
  }
}

/** The tags of the fields of a list, and of its `meta/v1` ListMeta. */
const METADATA = 0x0a;
const ITEM = 0x12;
const RESOURCE_VERSION = 0x12;
const CONTINUE = 0x1a;

/** As {@linkcode jsonItems}, in protobuf. An item has to be used before the next one is requested. */
export function* protobufItems(bytes: Uint8Array, kind: string): Generator<unknown, ListMeta> {
  let [version, next] = ["", ""];
  try {
    const { kind: found, object } = readEnvelope(new ProtobufCursor(bytes, startReading()));
    // Another object than a list of the kind would be taken for an empty list.
    if (found !== `${kind}List`) throw unreadable(`it is a ${found}, not a ${kind}List`);
    const cursor = object.begin();
    const item = new ProtobufCursor(bytes, startReading());
    for (let tag; (tag = cursor.nextTag());) {
      const outer = cursor.enter();
      const { pos, end } = cursor;
      if (tag === ITEM) yield new ProtobufObject(item, pos, end);
      for (let inner; tag === METADATA && (inner = cursor.nextTag());) {
        if (inner === RESOURCE_VERSION) version = cursor.text(false);
        else if (inner === CONTINUE) next = cursor.text(false);
        else cursor.pass();
      }
      cursor.pos = end;
      cursor.leave(outer);
    }
  } catch (cause) {
    throw cause instanceof ListError
      ? cause
      : unreadable(`it is not intact: ${messageOf(cause)}`, cause);
  }
  if (version === "") throw unreadable(NO_VERSION);
  return listMeta(version, next);
}

function listMeta(resourceVersion: string, next: unknown): ListMeta {
  return {
    resourceVersion,
    continue: typeof next === "string" && next !== "" ? next : undefined,
  };
}

function unreadable(reason: string, cause?: unknown): ListError {
  return new ListError(`Cannot read list: ${reason}`, { cause });
}
