/* Intrusive doubly linked lists: an element embeds `struct list`; a head is one that stands for itself. */
#ifndef HOLDFAST_LIST_H
#define HOLDFAST_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev;
    struct list *next;
};

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

/* The body may remove `item`, but no other element. */
#define list_each(item, after, head) \
    for (struct list *item = (head)->next, *after = item->next; item != (head); item = after, after = item->next)

static inline void list_init(struct list *list) {
    list->prev = list;
    list->next = list;
}

static inline bool list_empty(const struct list *list) {
    return list->next == list;
}

/* Puts `item` before `place`; with a head as the place that is the end of the list. */
static inline void list_insert_before(struct list *place, struct list *item) {
    item->prev = place->prev;
    item->next = place;
    place->prev->next = item;
    place->prev = item;
}

/* Safe to call twice: a removed element stands for itself. */
static inline void list_remove(struct list *item) {
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

#endif
