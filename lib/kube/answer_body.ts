import type { HttpResponse } from "./transport.ts";
import { MAX_OBJECT, parseJson, TextPieces } from "./json_text.ts";
import { PROTOBUF, tryReadStatus } from "./protobuf.ts";

/** Longest error body; a proxy may send a page of HTML. */
const LONGEST_ERROR_BODY = 64 * 1024;

/** Reads one object in JSON. */
export async function readObject({ body }: HttpResponse): Promise<unknown> {
  const text = new TextPieces(MAX_OBJECT);
  for await (const chunk of body) text.append(chunk);
  return parseJson(text.take());
}

/** Returns the beginning of an error body, as text or as the `Status` that it is in protobuf. */
export async function readExcerpt(response: HttpResponse): Promise<unknown> {
  const pieces = new TextPieces(LONGEST_ERROR_BODY);
  for await (const chunk of response.body) {
    pieces.append(chunk.subarray(0, LONGEST_ERROR_BODY - pieces.length));
    if (pieces.length === LONGEST_ERROR_BODY) break;
  }
  if (isProtobuf(response)) return tryReadStatus(pieces.takeBytes());
  const text = pieces.take();
  return tryParseJson(text) ?? text;
}

/** Whether an answer is in protobuf. */
export function isProtobuf({ contentType = "" }: HttpResponse): boolean {
  return contentType.split(";")[0]!.trim().toLowerCase() === PROTOBUF;
}

function tryParseJson(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}
