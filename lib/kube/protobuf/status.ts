import * as v from "valibot";
import { at, fields, list, text, wholeNumber } from "../../api/schema.ts";

const number = v.nullish(
  wholeNumber({ least: 0, most: 2 ** 31 - 1 }, "has to be a whole number"),
);

/** The fields of a `meta/v1` Status that errors need. */
export const STATUS = fields({
  message: at(3, v.nullish(text)),
  reason: at(4, v.nullish(text)),
  details: at(
    5,
    v.nullish(fields({
      causes: at(4, list(fields({ reason: at(1, v.nullish(text)) }))),
      retryAfterSeconds: at(5, number),
    })),
  ),
  code: at(6, number),
});
